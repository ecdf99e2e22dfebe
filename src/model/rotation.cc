#include "model/rotation.h"

#include <ggml.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace winnow {

Rotation rotation_of(const RopeSpec& rope, const LayerWeights& weights) {
  Rotation rotation{
      .interleaved = rope.mode == GGML_ROPE_TYPE_NORMAL,
      .n_dims = rope.n_dims,
      .frequency = std::vector<float>(static_cast<std::size_t>(rope.n_dims / 2)),
      .magnitude = rope.attn_factor,
  };
  // YaRN (arXiv 2309.00071, section 3.2): dimensions that turn more than beta_fast times within the original context
  // keep their frequency, those that turn less than beta_slow times are interpolated, with a ramp between.
  const auto dimension_of = [&](double turns) {
    return rope.n_dims * std::log(rope.n_ctx_orig / (turns * 2 * std::numbers::pi)) / (2 * std::log(double{rope.base}));
  };
  const double low = std::max(0.0, std::floor(dimension_of(double{rope.yarn_beta_fast})));
  const double high = std::min(rope.n_dims - 1.0, std::ceil(dimension_of(double{rope.yarn_beta_slow})));
  const ggml_tensor* factors = weights.rope_freqs;
  for (int i = 0; i < rope.n_dims / 2; ++i) {
    double frequency = std::pow(double{rope.base}, -2.0 * i / rope.n_dims);
    if (factors != nullptr) frequency /= double{static_cast<const float*>(factors->data)[i]};
    const double interpolated = frequency * double{rope.scale};
    const double ramp = 1.0 - std::clamp((i - low) / std::max(0.001, high - low), 0.0, 1.0);
    const double keep = rope.yarn_ext_factor != 0 ? ramp * double{rope.yarn_ext_factor} : 0.0;
    rotation.frequency[static_cast<std::size_t>(i)] = static_cast<float>(interpolated * (1 - keep) + frequency * keep);
  }
  if (rope.yarn_ext_factor != 0) rotation.magnitude *= 1.0F + 0.1F * std::log(1.0F / rope.scale);
  return rotation;
}

}  // namespace winnow
