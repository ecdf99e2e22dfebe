// gemma's block with norms before and after attention and feed-forward, soft caps, and a sliding window in every other
// layer.
#include <ggml.h>

#include <cmath>

#include "model/architectures/all.h"
#include "model/metadata.h"

namespace winnow {
namespace {

void configure(const Metadata& metadata, ModelSpec& spec) {
  spec.embedding_scale = std::sqrt(static_cast<float>(spec.n_embd));
  spec.logit_soft_cap = metadata.number_or("final_logit_softcapping", 30, 0, kLargestConstant);
  for (LayerSpec& layer : spec.layers) {
    layer.soft_cap = metadata.number_or("attn_logit_softcapping", 50, 0, kLargestConstant);
  }
  scale_queries_of_27b(46, spec);
}

}  // namespace

const Architecture kGemma2 = {
    .name = "gemma2",
    .models = "Gemma 2",
    .rope_mode = GGML_ROPE_TYPE_NEOX,
    .layer = {.norms = NormPlacement::kBoth, .feed_forward = {.activation = Activation::kGelu}},
    .sliding = {.window = 4096, .period = 2},
    .configure = configure,
};

}  // namespace winnow
