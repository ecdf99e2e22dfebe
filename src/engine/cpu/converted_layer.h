// The weights of the layer that rows are passing through, converted where that makes their products faster.
#pragma once

#include <cstdint>
#include <vector>

#include "model/packed_weights.h"
#include "winnow/session.h"

namespace winnow {

class Compute;
struct LayerWeights;

// Holds the converted weights of one layer at a time for all passes of an engine, which may take turns batch by batch:
// a pass that finds another layer's weights converts its own again.
class ConvertedLayer {
 public:
  explicit ConvertedLayer(PrefillWeights choice);

  // Returns the layer's converted weights for a pass of n_rows rows in batches of up to max_batch, valid until the next
  // call; null where all of its products use the file's own types.
  PackedLayer* use(const LayerWeights& weights, std::int32_t n_rows, int max_batch, Compute& compute);
  // Returns whether such a pass converts any of the layer's weights.
  bool converts(const LayerWeights& weights, std::int32_t n_rows) const;

 private:
  bool converts(const ggml_tensor* weight, std::int32_t n_rows) const;

  const PrefillWeights choice_;
  PackedLayer packed_;
  std::vector<ggml_tensor*> held_;  // the matrices in packed_; empty while it changes
  int held_batch_ = 0;
};

}  // namespace winnow
