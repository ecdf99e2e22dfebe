// Gated DeltaNet in three layers of four; the fourth has attention with normalised queries and keys and an output gate
// for each head. The file names the norm before the feed-forward post_attention_norm.
#include <ggml.h>

#include "model/architectures/all.h"

namespace winnow {

const Architecture kQwen35 = {
    .name = "qwen35",
    .models = "Qwen3.5 (dense)",
    .rope_mode = GGML_ROPE_TYPE_NEOX,
    .layer = {.qk_norm = QkNorm::kHead, .has_output_gate = true, .ffn_norm_name = "post_attention_norm"},
    .recurrence = RecurrenceKind::kDeltaNet,
    .has_rope_sections = true,
};

const Architecture kQwen35Moe = {
    .name = "qwen35moe",
    .models = "Qwen3.5 with experts",
    .rope_mode = GGML_ROPE_TYPE_NEOX,
    .layer = {.qk_norm = QkNorm::kHead,
              .has_output_gate = true,
              .feed_forward = {.is_width_of_all_used = true,
                               .routing = Routing::kNormalisedSoftmax,
                               .has_shared_gate = true},
              .ffn_norm_name = "post_attention_norm"},
    .recurrence = RecurrenceKind::kDeltaNet,
    .has_rope_sections = true,
};

}  // namespace winnow
