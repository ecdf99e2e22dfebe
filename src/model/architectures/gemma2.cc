// gemma's block with norms before and after attention and feed-forward, soft caps, and a window in every other layer.
#include <ggml.h>

#include <cmath>

#include "model/architectures/all.h"
#include "model/metadata.h"

namespace winnow {
namespace {

constexpr int kLayersOf27B = 46;  // whose queries are scaled by the width of a head that n_embd would give

void configure(const Metadata& metadata, ModelSpec& spec) {
  spec.embedding_scale = std::sqrt(static_cast<float>(spec.n_embd));
  spec.logit_soft_cap = metadata.number_or("final_logit_softcapping", 30, 0, kLargestConstant);
  for (LayerSpec& layer : spec.layers) {
    layer.soft_cap = metadata.number_or("attn_logit_softcapping", 50, 0, kLargestConstant);
    if (spec.n_layer() == kLayersOf27B) {
      layer.scale = 1.0F / std::sqrt(static_cast<float>(spec.n_embd / layer.n_head));
    }
  }
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
