// Gemma: embeddings scaled by sqrt(n_embd), gated GELU feed-forward, output tied to the embeddings, head size 256 that
// is not n_embd / n_head. The files carry the norms' weights with their +1 already added.
#include <ggml.h>

#include <cmath>

#include "model/architecture.h"
#include "model/graph_builder.h"

namespace winnow {
namespace {

void configure(ModelSpec& spec) {
  spec.embedding_scale = std::sqrt(static_cast<float>(spec.n_embd));
  for (LayerSpec& layer : spec.layers) layer.feed_forward.activation = Activation::kGelu;
}

}  // namespace

const Architecture kGemma = {
    .name = "gemma",
    .rope_mode = GGML_ROPE_TYPE_NEOX,
    .needs_qkv_bias = false,
    .needs_qk_norm = false,
    .configure = configure,
    .build_layer = build_pre_norm_layer,
};

}  // namespace winnow
