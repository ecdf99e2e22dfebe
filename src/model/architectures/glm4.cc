// Norms before and after attention and feed-forward, RoPE on half of each head, gate and up in one tensor.
#include <ggml.h>

#include "model/architectures/all.h"

namespace winnow {
const Architecture kGlm4 = {
    .name = "glm4",
    .models = "GLM-4-0414",
    .rope_mode = GGML_ROPE_TYPE_NORMAL,
    .layer = {.norms = NormPlacement::kBoth, .feed_forward = {.is_gate_in_up = true}},
};

}  // namespace winnow
