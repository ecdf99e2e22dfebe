// Experts; queries and keys are normalised over all heads together.
#include <ggml.h>

#include "model/architectures/all.h"

namespace winnow {
const Architecture kOlmoe = {
    .name = "olmoe",
    .models = "OLMoE",
    .rope_mode = GGML_ROPE_TYPE_NEOX,
    .layer = {.qk_norm = QkNorm::kProjection, .feed_forward = {.routing = Routing::kSoftmax}},
};

}  // namespace winnow
