// Qwen3 (dense): every query and key head is RMS-normalised before RoPE, which turns pairs (i, i + d/2).
#include <ggml.h>

#include "model/architecture.h"
#include "model/graph_builder.h"

namespace winnow {
const Architecture kQwen3 = {
    .name = "qwen3",
    .rope_mode = GGML_ROPE_TYPE_NEOX,
    .needs_qkv_bias = false,
    .needs_qk_norm = true,
    .configure = nullptr,
    .build_layer = build_pre_norm_layer,
};

}  // namespace winnow
