// Llama 2 and 3, Mistral, SmolLM2, TinyLlama: pre-norm blocks, RoPE on pairs (2i, 2i+1), gated SiLU feed-forward.
#include <ggml.h>

#include "model/architecture.h"
#include "model/graph_builder.h"

namespace winnow {
const Architecture kLlama = {
    .name = "llama",
    .rope_mode = GGML_ROPE_TYPE_NORMAL,
    .needs_qkv_bias = false,
    .needs_qk_norm = false,
    .configure = nullptr,
    .build_layer = build_pre_norm_layer,
};

}  // namespace winnow
