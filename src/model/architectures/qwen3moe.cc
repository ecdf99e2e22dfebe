// qwen3 with experts.
#include <ggml.h>

#include "model/architectures/all.h"

namespace winnow {
const Architecture kQwen3Moe = {
    .name = "qwen3moe",
    .models = "Qwen3-30B-A3B, Qwen3-235B-A22B",
    .rope_mode = GGML_ROPE_TYPE_NEOX,
    .layer = {.qk_norm = QkNorm::kHead,
              .feed_forward = {.is_width_of_all_used = true, .routing = Routing::kNormalisedSoftmax}},
};

}  // namespace winnow
