// RoPE's frequencies as numbers, for methods that estimate queries at future positions (expected-attention).
#pragma once

#include <vector>

#include "model/weights.h"

namespace winnow {

// The rotation of a layer, with which RotationView is filled.
struct Rotation {
  bool interleaved = false;      // pairs (2i, 2i+1); else (i, i + n_dims/2)
  int n_dims = 0;                // rotated dimensions of a head, the first ones; 0: none
  std::vector<float> frequency;  // [n_dims/2] radians per position, scaling and frequency factors included
  float magnitude = 1.0F;        // factor on sine and cosine
};

// Returns a layer's rotation, by the same arithmetic as ggml_rope_ext's.
Rotation rotation_of(const RopeSpec& spec, const LayerWeights& weights);

}  // namespace winnow
