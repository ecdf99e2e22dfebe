// Every query and key head is RMS-normalised before RoPE, which turns pairs (i, i + d/2).
#include <ggml.h>

#include "model/architectures/all.h"

namespace winnow {
const Architecture kQwen3 = {
    .name = "qwen3",
    .models = "Qwen3 (dense)",
    .rope_mode = GGML_ROPE_TYPE_NEOX,
    .layer = {.qk_norm = QkNorm::kHead},
};

}  // namespace winnow
