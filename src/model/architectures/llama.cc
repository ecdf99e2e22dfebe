// RMS norm before attention and feed-forward, RoPE on pairs (2i, 2i+1), gated SiLU; mixtures of experts as in Mixtral.
#include <ggml.h>

#include "model/architectures/all.h"

namespace winnow {
const Architecture kLlama = {
    .name = "llama",
    .models = "Llama 2 and 3, Mistral, Mixtral, SmolLM2, TinyLlama",
    .rope_mode = GGML_ROPE_TYPE_NORMAL,
    .layer = {.feed_forward = {.routing = Routing::kNormalisedSoftmax}},
};

}  // namespace winnow
