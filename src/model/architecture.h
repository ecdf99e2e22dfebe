// A model architecture: how its layers are built. Adding one is one file in architectures/ and one line in the table of
// architecture.cc.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "model/layer_spec.h"

struct ggml_tensor;

namespace winnow {

class GraphBuilder;
struct LayerWeights;

struct Architecture {
  std::string_view name;  // general.architecture in the file
  int rope_mode;          // GGML_ROPE_TYPE_NORMAL or _NEOX
  bool needs_qkv_bias;    // attn_{q,k,v}.bias must be there
  bool needs_qk_norm;     // attn_{q,k}_norm.weight must be there
  // What follows from the dimensions but is not in the metadata (scales, activation). May be null.
  void (*configure)(ModelSpec& spec);
  // x [n_embd, n_rows] -> the hidden states after the layer, [n_embd, n_rows].
  ggml_tensor* (*build_layer)(GraphBuilder& graph, const LayerSpec& spec, const LayerWeights& weights, ggml_tensor* x);
};

extern const Architecture kLlama;
extern const Architecture kQwen2;
extern const Architecture kQwen3;
extern const Architecture kGemma;

// Throws Error(kUnsupported) with the list of names.
const Architecture& find_architecture(std::string_view name);

}  // namespace winnow
