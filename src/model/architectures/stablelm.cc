// Layer norms with biases, RoPE on a part of each head. The 12B normalises every head with weights of its own, and runs
// attention and feed-forward in parallel.
#include <ggml.h>

#include <cstddef>

#include "model/architectures/all.h"
#include "model/metadata.h"

namespace winnow {
namespace {

void configure(const Metadata& metadata, ModelSpec& spec) {
  for (std::size_t l = 0; l < spec.layers.size(); ++l) {
    const auto has = [&](const char* name) {
      return metadata.file().find_tensor("blk." + std::to_string(l) + "." + name) != nullptr;
    };
    if (has("attn_q_norm.weight")) spec.layers[l].qk_norm = QkNorm::kOwnHead;
    spec.layers[l].is_parallel = !has("ffn_norm.weight");
  }
}

}  // namespace

const Architecture kStableLm = {
    .name = "stablelm",
    .models = "StableLM 2, StableLM 3B, StableCode",
    .rope_mode = GGML_ROPE_TYPE_NEOX,
    .layer = {.norm = {.kind = NormKind::kLayer}, .has_norm_bias = true},
    .configure = configure,
};

}  // namespace winnow
