// Attention and feed-forward have norms only on their outputs; queries and keys are normalised over all heads together.
// OLMo 3 has a sliding window in three layers of four, whose RoPE is not scaled.
#include <ggml.h>

#include "model/architectures/all.h"

namespace winnow {
const Architecture kOlmo2 = {
    .name = "olmo2",
    .models = "OLMo 2, OLMo 3",
    .rope_mode = GGML_ROPE_TYPE_NEOX,
    .layer = {.qk_norm = QkNorm::kProjection, .norms = NormPlacement::kAfter},
    .sliding = {.period = 4, .is_rope_scaled = false},
};

}  // namespace winnow
