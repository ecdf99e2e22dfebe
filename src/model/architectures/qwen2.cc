// llama's block with biases on the Q, K and V projections and RoPE on pairs (i, i + d/2).
#include <ggml.h>

#include "model/architectures/all.h"

namespace winnow {
const Architecture kQwen2 = {
    .name = "qwen2",
    .models = "Qwen2, Qwen2.5",
    .rope_mode = GGML_ROPE_TYPE_NEOX,
};

}  // namespace winnow
