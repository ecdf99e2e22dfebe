// Qwen2 and Qwen2.5: llama's block with biases on the Q, K and V projections and RoPE on pairs (i, i + d/2).
#include <ggml.h>

#include "model/architecture.h"
#include "model/graph_builder.h"

namespace winnow {
const Architecture kQwen2 = {
    .name = "qwen2",
    .rope_mode = GGML_ROPE_TYPE_NEOX,
    .needs_qkv_bias = true,
    .needs_qk_norm = false,
    .configure = nullptr,
    .build_layer = build_pre_norm_layer,
};

}  // namespace winnow
