// Experts with biases and a clamped SwiGLU, a sink logit in the softmax of every head, a sliding window in every other
// layer.
#include <ggml.h>

#include "model/architectures/all.h"

namespace winnow {
const Architecture kGptOss = {
    .name = "gpt-oss",
    .models = "gpt-oss 20B and 120B",
    .rope_mode = GGML_ROPE_TYPE_NEOX,
    .layer = {.feed_forward = {.activation = Activation::kClampedSilu, .routing = Routing::kSoftmaxOfChosen},
              .has_output_bias = true,
              .has_feed_forward_bias = true,
              .ffn_norm_name = "post_attention_norm"},
    .sliding = {.period = 2},
};

}  // namespace winnow
