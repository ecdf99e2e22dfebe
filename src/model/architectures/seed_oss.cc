// llama's block with RoPE on pairs (i, i + d/2); the file calls the norm before the feed-forward post_attention_norm.
#include <ggml.h>

#include "model/architectures/all.h"

namespace winnow {
const Architecture kSeedOss = {
    .name = "seed_oss",
    .models = "Seed-OSS",
    .rope_mode = GGML_ROPE_TYPE_NEOX,
    .layer = {.ffn_norm_name = "post_attention_norm"},
};

}  // namespace winnow
