// Multi-head latent attention; experts, with a shared one, in all but the first layers.
#include <ggml.h>

#include <cmath>
#include <string>

#include "model/architectures/all.h"
#include "model/metadata.h"

namespace winnow {
namespace {

Routing routing(const Metadata& metadata, const ModelSpec& spec) {
  enum : int { kUnsaid = 0, kSoftmax = 1, kSigmoid = 2, kSoftmaxOfChosen = 3 };
  int function = metadata.integer_or("expert_gating_func", kUnsaid, kUnsaid, kSoftmaxOfChosen);
  // Older files do not state it; GLM-4.7-Flash is recognised by its vocabulary.
  constexpr int kGlmVocabulary = 154880;
  if (function == kUnsaid) function = spec.n_vocab == kGlmVocabulary ? kSigmoid : kSoftmax;
  const bool is_normalised = metadata.truth_or("expert_weights_norm", false);
  if (function == kSigmoid) return is_normalised ? Routing::kNormalisedSigmoid : Routing::kSigmoid;
  if (function == kSoftmaxOfChosen) return Routing::kSoftmaxOfChosen;  // their sum is 1
  return is_normalised ? Routing::kNormalisedSoftmax : Routing::kSoftmax;
}

void read_attention(const Metadata& metadata, LayerSpec& layer) {
  layer.latent_rank = metadata.integer("attention.kv_lora_rank", 1, 1 << 16);
  layer.query_rank = metadata.file().find_tensor("blk.0.attn_q.weight") != nullptr
                         ? 0
                         : metadata.integer("attention.q_lora_rank", 1, 1 << 20);
  if (layer.rope.n_dims >= layer.key_dim) {
    metadata.refuse(ErrorCode::kBadFile, "rope.dimension_count is " + std::to_string(layer.rope.n_dims) +
                                             ", expected less than a key's " + std::to_string(layer.key_dim));
  }
  // YaRN's magnitude scales whole queries and keys, not only their rotated parts, so it is applied to the scores. The
  // converter has multiplied its factor by 0.1.
  const float log_factor = std::log(1.0F / layer.rope.scale);
  const float multiplier = metadata.number_or("rope.scaling.yarn_log_multiplier", 0, 0, 100) / 0.1F;
  const float whole = 1.0F + 0.1F * log_factor;
  layer.rope.attn_factor = metadata.number_or("rope.scaling.attn_factor", 1.0, -kLargestConstant, kLargestConstant);
  if (layer.rope.yarn_ext_factor != 0 && multiplier != 0) layer.rope.attn_factor /= whole;
  const float magnitude = layer.rope.attn_factor * whole * (1.0F + 0.1F * multiplier * log_factor);
  layer.scale *= magnitude * magnitude;
}

void configure(const Metadata& metadata, ModelSpec& spec) {
  if (metadata.integer_or("expert_group_count", 1, 0, 1 << 16) > 1) {
    metadata.refuse(ErrorCode::kUnsupported, "experts in groups (expert_group_count, DeepSeek-V3) are not supported");
  }
  if (metadata.number_or("attention.temperature_scale", 0, -kLargestConstant, kLargestConstant) != 0) {
    metadata.refuse(ErrorCode::kUnsupported, "an attention temperature (attention.temperature_scale) is not supported");
  }
  const int n_layer = spec.n_layer() + spec.n_skipped_layers;
  const int n_dense = metadata.integer_or("leading_dense_block_count", 0, 0, n_layer);
  const std::vector<int> n_ff = metadata.of_layers("feed_forward_length", n_layer, 0, 1 << 22,
                                                   std::vector<int>(static_cast<std::size_t>(n_layer), 0));
  const int n_shared = metadata.integer("expert_shared_count", 0, 1 << 10);
  const Routing gate = routing(metadata, spec);
  const float scale = metadata.number_or("expert_weights_scale", 1, 0, kLargestConstant);
  for (std::size_t l = 0; l < spec.layers.size(); ++l) {
    LayerSpec& layer = spec.layers[l];
    read_attention(metadata, layer);
    FeedForwardSpec& feed_forward = layer.feed_forward;
    if (static_cast<int>(l) < n_dense) {
      if (n_ff[l] < 1) metadata.refuse(ErrorCode::kBadFile, "feed_forward_length is 0, expected at least 1");
      feed_forward = {.width = n_ff[l]};
      continue;
    }
    if (feed_forward.n_expert == 0) metadata.refuse(ErrorCode::kBadFile, "expert_count is 0, expected at least 1");
    feed_forward.routing = gate;
    if (scale > 0) feed_forward.share_scale = scale;
    feed_forward.shared_width = n_shared * feed_forward.width;
  }
}

}  // namespace

const Architecture kDeepSeek2 = {
    .name = "deepseek2",
    .models = "DeepSeek-V2-Lite, GLM-4.7-Flash",
    .rope_mode = GGML_ROPE_TYPE_NORMAL,
    .layer = {.feed_forward = {.routing = Routing::kSoftmax}},
    .has_latent_attention = true,
    .configure = configure,
};

}  // namespace winnow
