// granite with experts, and in some files a shared expert.
#include <ggml.h>

#include "model/architectures/all.h"

namespace winnow {
const Architecture kGraniteMoe = {
    .name = "granitemoe",
    .models = "Granite 3 1B-A400M and 3B-A800M",
    .rope_mode = GGML_ROPE_TYPE_NORMAL,
    .layer = {.feed_forward = {.routing = Routing::kNormalisedSoftmax}},
    .configure = read_multipliers,
};

}  // namespace winnow
