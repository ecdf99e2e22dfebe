// Attention and feed-forward run in parallel after one layer norm. Three layers of four have a sliding window, and only
// those use RoPE.
#include <ggml.h>

#include "model/architectures/all.h"
#include "model/metadata.h"

namespace winnow {
namespace {

void configure(const Metadata& metadata, ModelSpec& spec) {
  spec.logit_scale = metadata.number("logit_scale", kSmallestConstant, kLargestConstant);
  for (LayerSpec& layer : spec.layers) {
    if (layer.kind != LayerKind::kSlidingWindow) layer.rope.n_dims = 0;
  }
}

}  // namespace

const Architecture kCohere2 = {
    .name = "cohere2",
    .models = "Command R7B, Command A, Tiny Aya",
    .rope_mode = GGML_ROPE_TYPE_NORMAL,
    .layer = {.norm = {.kind = NormKind::kLayer}, .is_parallel = true},
    .sliding = {.period = 4},
    .configure = configure,
};

}  // namespace winnow
