// Embeddings are multiplied by sqrt(n_embd); the feed-forward is gated with GELU. Output is tied to the embeddings and
// the head size is not n_embd / n_head. The files carry the norms' weights with their +1 already added.
#include <ggml.h>

#include <cmath>

#include "model/architectures/all.h"

namespace winnow {
namespace {

void configure(const Metadata&, ModelSpec& spec) { spec.embedding_scale = std::sqrt(static_cast<float>(spec.n_embd)); }

}  // namespace

const Architecture kGemma = {
    .name = "gemma",
    .models = "Gemma, CodeGemma",
    .rope_mode = GGML_ROPE_TYPE_NEOX,
    .layer = {.feed_forward = {.activation = Activation::kGelu}},
    .configure = configure,
};

}  // namespace winnow
