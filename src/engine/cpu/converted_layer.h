// The weights of the layer that rows are passing through, converted where their products are faster so.
#pragma once

#include <cstdint>
#include <vector>

#include "model/packed_weights.h"
#include "winnow/session.h"

namespace winnow {

class Compute;
struct LayerWeights;

// One for an engine: passes that take turns batch by batch use it in turn. What it holds is told by the matrices
// themselves, so whoever finds those of another layer converts its own again.
//
// Not thread-safe.
class ConvertedLayer {
 public:
  explicit ConvertedLayer(PrefillWeights choice);

  // The layer's weights for a pass of n_rows rows in batches of up to max_batch, valid until the next call; null where
  // all of its products are taken on the file's own types.
  PackedLayer* use(const LayerWeights& weights, std::int32_t n_rows, int max_batch, Compute& compute);
  // Whether there are any for such a pass.
  bool converts(const LayerWeights& weights, std::int32_t n_rows) const;

 private:
  bool converts(const ggml_tensor* weight, std::int32_t n_rows) const;

  const PrefillWeights choice_;
  PackedLayer packed_;
  std::vector<ggml_tensor*> held_;  // what packed_ holds; empty while it changes
  int held_batch_ = 0;
};

}  // namespace winnow
