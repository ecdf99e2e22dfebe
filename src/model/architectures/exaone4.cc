// Attention and feed-forward have norms only on their outputs; queries and keys are normalised. The 32B has a sliding
// window in three layers of four, and only those use RoPE.
#include <ggml.h>

#include <algorithm>

#include "model/architectures/all.h"

namespace winnow {
namespace {

void configure(const Metadata&, ModelSpec& spec) {
  const auto slides = [](const LayerSpec& layer) { return layer.kind == LayerKind::kSlidingWindow; };
  if (std::none_of(spec.layers.begin(), spec.layers.end(), slides)) return;
  for (LayerSpec& layer : spec.layers) {
    if (!slides(layer)) layer.rope.n_dims = 0;
  }
}

}  // namespace

const Architecture kExaone4 = {
    .name = "exaone4",
    .models = "EXAONE 4.0",
    .rope_mode = GGML_ROPE_TYPE_NEOX,
    .layer = {.qk_norm = QkNorm::kHead, .norms = NormPlacement::kAfter},
    .sliding = {.period = 4},
    .configure = configure,
};

}  // namespace winnow
