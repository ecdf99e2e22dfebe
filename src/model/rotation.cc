#include "model/rotation.h"

#include <ggml.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace winnow {

Rotation rotation_of(const Hparams& h, const Weights& weights) {
  Rotation rotation{
      .interleaved = h.rope_mode == GGML_ROPE_TYPE_NORMAL,
      .n_dims = h.n_rot,
      .frequency = std::vector<float>(static_cast<std::size_t>(h.n_rot / 2)),
      .magnitude = h.rope_attn_factor,
  };
  // YaRN (arXiv 2309.00071, section 3.2): dimensions that turn more than beta_fast times within the original context
  // keep their frequency, those that turn less than beta_slow times are interpolated, with a ramp between.
  const auto dimension_of = [&](double turns) {
    return h.n_rot * std::log(h.n_ctx_orig / (turns * 2 * std::numbers::pi)) / (2 * std::log(double{h.rope_base}));
  };
  const double low = std::max(0.0, std::floor(dimension_of(double{h.yarn_beta_fast})));
  const double high = std::min(h.n_rot - 1.0, std::ceil(dimension_of(double{h.yarn_beta_slow})));
  const ggml_tensor* factors = weights.layers.front().rope_freqs;
  for (int i = 0; i < h.n_rot / 2; ++i) {
    double frequency = std::pow(double{h.rope_base}, -2.0 * i / h.n_rot);
    if (factors != nullptr) frequency /= double{static_cast<const float*>(factors->data)[i]};
    const double interpolated = frequency * double{h.rope_scale};
    const double ramp = 1.0 - std::clamp((i - low) / std::max(0.001, high - low), 0.0, 1.0);
    const double keep = h.yarn_ext_factor != 0 ? ramp * double{h.yarn_ext_factor} : 0.0;
    rotation.frequency[static_cast<std::size_t>(i)] = static_cast<float>(interpolated * (1 - keep) + frequency * keep);
  }
  if (h.yarn_ext_factor != 0) rotation.magnitude *= 1.0F + 0.1F * std::log(1.0F / h.rope_scale);
  return rotation;
}

}  // namespace winnow
