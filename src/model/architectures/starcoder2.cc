// Layer norms, biases everywhere, and a feed-forward without a gate.
#include <ggml.h>

#include "model/architectures/all.h"

namespace winnow {
const Architecture kStarCoder2 = {
    .name = "starcoder2",
    .models = "StarCoder2",
    .rope_mode = GGML_ROPE_TYPE_NEOX,
    .layer = {.norm = {.kind = NormKind::kLayer},
              .feed_forward = {.is_gated = false, .activation = Activation::kGelu},
              .has_output_bias = true,
              .has_norm_bias = true,
              .has_feed_forward_bias = true},
};

}  // namespace winnow
