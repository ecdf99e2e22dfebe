// The layers of a tiny model's file: their tensors, and the sizes that metadata and tensors must agree on.
#pragma once

#include <string>

#include "model/tensor_writer.h"
#include "model/tiny_architectures.h"

namespace winnow::test {

// Heads have 32 numbers; there are 2 for keys and 4 for values.
constexpr int kDeltaDim = 32, kDeltaKeyHeads = 2, kDeltaValueHeads = 4, kDeltaTaps = 4;

// Mamba-2 is twice as wide as the model (libllama accepts nothing else); small models have odd numbers of heads and
// groups.
struct MambaSizes {
  explicit MambaSizes(int n_embd)
      : n_values(2 * n_embd),
        n_heads(n_values / (n_embd < 1024 ? 16 : 64)),
        n_groups(n_heads % 3 == 0 ? 3 : 1),
        n_keys(n_embd < 1024 ? 48 : 128) {}
  int n_channels() const { return n_values + 2 * n_groups * n_keys; }
  int n_values, n_heads, n_groups, n_keys;
};

void add_norm(TensorWriter& tensors, const TinyArchitecture& a, const std::string& name, int n);
void add_layer(TensorWriter& tensors, const TinyModelOptions& o, const TinyArchitecture& a, const TinyLayer& layer,
               int index);

}  // namespace winnow::test
