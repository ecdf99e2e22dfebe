// Queries and keys are normalised after they are rotated; the RoPE base may be raised for a longer context.
#include <ggml.h>

#include <cmath>

#include "model/architectures/all.h"
#include "model/metadata.h"

namespace winnow {
namespace {

void configure(const Metadata& metadata, ModelSpec& spec) {
  const float alpha = metadata.number_or("rope.scaling.alpha", 0, 0, 1e6);
  if (alpha == 0) return;
  for (LayerSpec& layer : spec.layers) {  // NTK-aware scaling: base * alpha^(d / (d - 2))
    const auto d = static_cast<float>(layer.key_dim);
    layer.rope.base *= std::pow(alpha, d / (d - 2));
  }
}

}  // namespace

const Architecture kHunyuanDense = {
    .name = "hunyuan-dense",
    .models = "Hunyuan 0.5B to 7B",
    .rope_mode = GGML_ROPE_TYPE_NEOX,
    .layer = {.qk_norm = QkNorm::kHead, .is_norm_after_rope = true},
    .configure = configure,
};

}  // namespace winnow
