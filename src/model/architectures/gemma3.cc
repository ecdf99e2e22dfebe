// gemma2's block with norms of queries and keys instead of soft caps. Five layers of six have a sliding window and a
// RoPE base of their own, unscaled.
#include <ggml.h>

#include <cmath>

#include "model/architectures/all.h"
#include "model/metadata.h"

namespace winnow {
namespace {

void configure(const Metadata& metadata, ModelSpec& spec) {
  spec.embedding_scale = std::sqrt(static_cast<float>(spec.n_embd));
  spec.logit_soft_cap = metadata.number_or("final_logit_softcapping", 0, 0, kLargestConstant);
  scale_queries_of_27b(62, spec);
}

}  // namespace

const Architecture kGemma3 = {
    .name = "gemma3",
    .models = "Gemma 3 (text)",
    .rope_mode = GGML_ROPE_TYPE_NEOX,
    .layer = {.qk_norm = QkNorm::kHead,
              .norms = NormPlacement::kBoth,
              .feed_forward = {.activation = Activation::kGelu}},
    .sliding = {.period = 6, .rope_base = 10000, .is_rope_scaled = false},
    .configure = configure,
};

}  // namespace winnow
