// qwen2 with experts and a shared expert, whose output is multiplied by a gate of its own.
#include <ggml.h>

#include "model/architectures/all.h"

namespace winnow {
const Architecture kQwen2Moe = {
    .name = "qwen2moe",
    .models = "Qwen1.5-MoE, Qwen2-57B-A14B",
    .rope_mode = GGML_ROPE_TYPE_NEOX,
    .layer = {.feed_forward = {.is_width_of_all_used = true, .routing = Routing::kSoftmax, .has_shared_gate = true}},
};

}  // namespace winnow
