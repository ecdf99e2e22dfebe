// gemma3's block with norms of values, heads of two sizes and a scale of the hidden state. Layers without a sliding
// window may use their keys as values; the last layers may attend to the keys and values of earlier ones; tokens may
// have per-layer embeddings; the feed-forward may have experts in addition to a dense network.
#include <ggml.h>

#include <cmath>
#include <string>

#include "model/architectures/all.h"
#include "model/metadata.h"

namespace winnow {
namespace {

// Makes the last n_shared layers attend to the keys and values of the last layer of their kind before them. Those are
// the last two layers that have their own: one with a sliding window, then one without.
void share_entries(const Metadata& metadata, int n_shared, ModelSpec& spec) {
  const int first = spec.n_layer() - n_shared;
  for (int l = first; l < spec.n_layer(); ++l) {
    LayerSpec& layer = spec.layers[static_cast<std::size_t>(l)];
    const int source = first - (layer.sliding_window > 0 ? 2 : 1);
    const LayerSpec* from = source >= 0 ? &spec.layers[static_cast<std::size_t>(source)] : nullptr;
    if (from == nullptr || from->sliding_window != layer.sliding_window || from->n_kv_head != layer.n_kv_head ||
        from->key_dim != layer.key_dim || from->value_dim != layer.value_dim) {
      metadata.refuse(ErrorCode::kBadFile,
                      "layer " + std::to_string(l) + " shares the keys and values of layer " + std::to_string(source) +
                          " (attention.shared_kv_layers), which does not exist or is of a different kind");
    }
    layer.kind = LayerKind::kSharedAttention;
    layer.kv_layer = source;
  }
}

void configure(const Metadata& metadata, ModelSpec& spec) {
  if (!metadata.has("attention.sliding_window_pattern")) {
    metadata.refuse(ErrorCode::kBadFile, "attention.sliding_window_pattern is missing");
  }
  metadata.integer("attention.sliding_window", 1, 1 << 30);  // must be present
  spec.embedding_scale = std::sqrt(static_cast<float>(spec.n_embd));
  spec.logit_soft_cap = metadata.number_or("final_logit_softcapping", 0, 0, kLargestConstant);
  const int n_layer = spec.n_layer() + spec.n_skipped_layers;
  const int per_layer_embedding_dim = metadata.integer_or("embedding_length_per_layer_input", 0, 0, 1 << 16);
  const std::vector<int> n_ff = metadata.of_layers("feed_forward_length", n_layer, 1, 1 << 22);
  for (std::size_t l = 0; l < spec.layers.size(); ++l) {
    LayerSpec& layer = spec.layers[l];
    const std::string attn = "blk." + std::to_string(l) + ".attn_";
    layer.scale = 1;
    layer.is_key_value = metadata.file().find_tensor(attn + "v.weight") == nullptr &&
                         metadata.file().find_tensor(attn + "qkv.weight") == nullptr;
    layer.rope.factors = layer.sliding_window > 0 ? RopeFactors::kNone : RopeFactors::kRequired;
    layer.per_layer_embedding_dim = per_layer_embedding_dim;
    FeedForwardSpec& feed_forward = layer.feed_forward;
    if (feed_forward.n_expert > 0) {
      feed_forward.shared_width = n_ff[l];
      feed_forward.is_dense_beside = true;
    }
  }
  share_entries(metadata, metadata.integer_or("attention.shared_kv_layers", 0, 0, spec.n_layer()), spec);
}

}  // namespace

const Architecture kGemma4 = {
    .name = "gemma4",
    .models = "Gemma 4 (text)",
    .rope_mode = GGML_ROPE_TYPE_NEOX,
    .layer = {.qk_norm = QkNorm::kHead,
              .has_value_norm = true,
              .norms = NormPlacement::kBoth,
              .feed_forward = {.activation = Activation::kGelu, .routing = Routing::kNormalisedSoftmax},
              .has_output_scale = true},
    .sliding = {.rope_base = 10000, .is_rope_scaled = false},
    .configure = configure,
};

}  // namespace winnow
