#include "model/weights.h"

#include <ggml.h>

#include <cassert>
#include <cstddef>
#include <cstring>
#include <string>
#include <utility>

#include "model/derived_tensors.h"
#include "model/interleaved_weights.h"
#include "model/tensor_taker.h"

namespace winnow {
namespace {

// Finds the tensors of one layer.
class LayerLoader {
 public:
  LayerLoader(TensorTaker& take, Views& views, Copies& copies, const ModelSpec& model, int layer)
      : take_(take),
        views_(views),
        copies_(copies),
        spec_(model.layer(layer)),
        n_embd_(model.n_embd),
        n_vocab_(model.n_vocab),
        n_layer_(model.n_layer()),
        blk_("blk." + std::to_string(layer) + ".") {
    weights_.layer = layer;
  }

  LayerWeights load() {
    load_norms();
    if (spec_.kind == LayerKind::kRecurrent) {
      load_recurrence();
    } else {
      load_attention();
    }
    if (spec_.feed_forward.n_expert > 0) {
      load_experts();
    } else {
      load_feed_forward();
    }
    load_rope_factors();
    if (spec_.per_layer_embedding_dim > 0) load_token_input();
    if (spec_.has_output_scale) {
      weights_.output_scale = take_.constants(blk_ + "layer_output_scale.weight", {1}, Presence::kOptional);
    }
    return weights_;
  }

 private:
  void load_attention() {
    if (spec_.latent_rank > 0) {
      load_latent();
    } else {
      load_qkv();
    }
    weights_.wo = matrix("attn_output", {spec_.output_size(), n_embd_}, weights_.scales.wo);
    weights_.bo = bias("attn_output", n_embd_, required_if(spec_.has_output_bias));
    load_qk_norms();
    if (spec_.has_sink_logits) weights_.sink_logits = take_.constants(blk_ + "attn_sinks.weight", {spec_.n_head});
  }

  void load_recurrence() {
    const RecurrenceSpec& spec = spec_.recurrence;
    if (spec.kind == RecurrenceKind::kMamba2) return load_mamba2();
    if (spec.kind == RecurrenceKind::kShortConvolution) {
      weights_.conv = take_.constants(blk_ + "shortconv.conv.weight", {spec.n_taps, n_embd_});
      weights_.conv_in = take_.matrix(blk_ + "shortconv.in_proj.weight", {n_embd_, 3 * n_embd_});
      weights_.conv_out = take_.matrix(blk_ + "shortconv.out_proj.weight", {n_embd_, n_embd_});
      return;
    }
    const std::int64_t n_channels = spec.n_channels(n_embd_), n_heads = spec.n_value_heads;
    weights_.conv = take_.constants(blk_ + "ssm_conv1d.weight", {spec.n_taps, n_channels});
    ProductScales& scales = weights_.scales;
    weights_.conv_in = matrix("attn_qkv", {n_embd_, n_channels}, scales.conv_in);
    weights_.conv_out = matrix("ssm_out", {spec.n_values(), n_embd_}, scales.conv_out);
    weights_.state_gate = matrix("attn_gate", {n_embd_, spec.n_values()}, scales.state_gate);
    weights_.state_alpha = matrix("ssm_alpha", {n_embd_, n_heads}, scales.state_alpha);
    weights_.state_beta = matrix("ssm_beta", {n_embd_, n_heads}, scales.state_beta);
    weights_.state_decay = take_.constants(blk_ + "ssm_a", {n_heads});
    weights_.state_decay_bias = take_.constants(blk_ + "ssm_dt.bias", {n_heads});
    weights_.state_norm = take_.constants(blk_ + "ssm_norm.weight", {spec.value_dim});
  }

  // One tensor projects to the output's gate, the convolution's channels and the decay.
  void load_mamba2() {
    const RecurrenceSpec& spec = spec_.recurrence;
    const std::int64_t n_channels = spec.n_channels(n_embd_), n_values = spec.n_values(), n_heads = spec.n_value_heads;
    ProductScales& scales = weights_.scales;
    ggml_tensor* fused = matrix("ssm_in", {n_embd_, n_values + n_channels + n_heads}, scales.conv_in);
    scales.state_gate = scales.state_alpha = scales.conv_in;
    weights_.state_gate = views_.slice(fused, 0, n_values);
    weights_.conv_in = views_.slice(fused, n_values, n_channels);
    weights_.state_alpha = views_.slice(fused, n_values + n_channels, n_heads);
    weights_.conv = take_.constants(blk_ + "ssm_conv1d.weight", {spec.n_taps, n_channels});
    weights_.conv_b = bias("ssm_conv1d", n_channels, Presence::kOptional);
    weights_.conv_out = matrix("ssm_out", {n_values, n_embd_}, scales.conv_out);
    weights_.state_decay = take_.constants(blk_ + "ssm_a", {1, n_heads});
    weights_.state_decay_bias = bias("ssm_dt", n_heads);
    weights_.state_skip = take_.constants(blk_ + "ssm_d", {1, n_heads});
    weights_.state_norm = take_.constants(blk_ + "ssm_norm.weight", {n_values / spec.n_key_heads, spec.n_key_heads});
  }

  // Returns a matrix, or experts' matrices, and sets `scale` if the file has factors on the products.
  ggml_tensor* matrix(const std::string& name, std::initializer_list<std::int64_t> shape, ggml_tensor*& scale) {
    scale = product_scale(name, shape.size() == 3 ? spec_.feed_forward.n_expert : 1);
    return take_.matrix(blk_ + name + ".weight", shape);
  }

  // Returns n factors on the products with a matrix, null if the file has none. Those on the inputs are for products
  // that round their inputs to 4 bits; winnow's do not.
  ggml_tensor* product_scale(const std::string& name, std::int64_t n) {
    take_.constants(blk_ + name + ".input_scale", {n}, Presence::kOptional);
    return take_.constants(blk_ + name + ".scale", {n}, Presence::kOptional);
  }

  ggml_tensor* bias(const char* name, std::int64_t n, Presence presence = Presence::kRequired) {
    return take_.constants(blk_ + name + ".bias", {n}, presence);
  }

  void load_norms() {
    const auto norm = [&](const char* name) { return take_.norm(blk_ + name, n_embd_, spec_.has_norm_bias); };
    if (spec_.norms != NormPlacement::kAfter) {
      weights_.attn_norm = norm("attn_norm");
      if (!spec_.is_parallel) weights_.ffn_norm = norm(spec_.ffn_norm_name);
    }
    if (spec_.norms != NormPlacement::kBefore) {
      weights_.attn_post_norm = norm("post_attention_norm");
      weights_.ffn_post_norm = norm("post_ffw_norm");
    }
  }

  // Loads the projections from one tensor or from three.
  void load_qkv() {
    const std::int64_t q = spec_.q_size() * (spec_.has_output_gate ? 2 : 1), k = spec_.k_size(), v = spec_.v_size();
    ProductScales& scales = weights_.scales;
    if (!spec_.owns_entries()) {
      weights_.wq = matrix("attn_q", {n_embd_, q}, scales.wq);
      load_unused({{"attn_k", n_embd_, k}, {"attn_v", n_embd_, v}});
      return;
    }
    if (take_.has(blk_ + "attn_qkv.weight")) {
      ggml_tensor* fused = matrix("attn_qkv", {n_embd_, q + k + v}, scales.wq);
      scales.wk = scales.wv = scales.wq;
      weights_.wq = views_.slice(fused, 0, q);
      weights_.wk = views_.slice(fused, q, k);
      weights_.wv = views_.slice(fused, q + k, v);
    } else {
      weights_.wq = matrix("attn_q", {n_embd_, q}, scales.wq);
      weights_.wk = matrix("attn_k", {n_embd_, k}, scales.wk);
      if (!spec_.is_key_value) weights_.wv = matrix("attn_v", {n_embd_, v}, scales.wv);
    }
    if (ggml_tensor* fused = take_.constants(blk_ + "attn_qkv.bias", {q + k + v}, Presence::kOptional)) {
      weights_.bq = views_.slice(fused, 0, q);
      weights_.bk = views_.slice(fused, q, k);
      weights_.bv = views_.slice(fused, q + k, v);
    } else {
      weights_.bq = bias("attn_q", q, Presence::kOptional);
      weights_.bk = bias("attn_k", k, Presence::kOptional);
      weights_.bv = bias("attn_v", v, Presence::kOptional);
    }
  }

  // Converters also write the matrices with which a layer that attends to another's keys and values would make its own.
  struct Unused {
    const char* name;
    std::int64_t n_in, n_out;
  };
  void load_unused(std::initializer_list<Unused> matrices) {
    for (const Unused& unused : matrices) {
      take_.matrix(blk_ + unused.name + ".weight", {unused.n_in, unused.n_out}, Presence::kOptional);
      product_scale(unused.name, 1);
    }
  }

  void load_latent() {
    const std::int64_t n_head = spec_.n_head, rank = spec_.latent_rank, n_rotated = spec_.rope.n_dims;
    const std::int64_t n_fixed = spec_.key_dim - n_rotated;
    if (spec_.query_rank > 0) {
      weights_.query_a = take_.matrix(blk_ + "attn_q_a.weight", {n_embd_, spec_.query_rank});
      weights_.query_a_norm = take_.constants(blk_ + "attn_q_a_norm.weight", {spec_.query_rank});
      weights_.wq = take_.matrix(blk_ + "attn_q_b.weight", {spec_.query_rank, spec_.q_size()});
    } else {
      weights_.wq = matrix("attn_q", {n_embd_, spec_.q_size()}, weights_.scales.wq);
    }
    weights_.latent = take_.matrix(blk_ + "attn_kv_a_mqa.weight", {n_embd_, rank + n_rotated});
    weights_.latent_norm = take_.constants(blk_ + "attn_kv_a_norm.weight", {rank});
    if (take_.has(blk_ + "attn_kv_b.weight")) {
      weights_.latent_kv = take_.matrix(blk_ + "attn_kv_b.weight", {rank, n_head * (n_fixed + spec_.value_dim)});
      return;
    }
    weights_.latent_k = copies_.transposed(take_.matrix(blk_ + "attn_k_b.weight", {n_fixed, rank, n_head}));
    ggml_tensor* values = take_.matrix(blk_ + "attn_v_b.weight", {rank, spec_.value_dim, n_head});
    weights_.latent_v = views_.rows(values);
  }

  void load_qk_norms() {
    const std::string q = blk_ + "attn_q_norm.weight", k = blk_ + "attn_k_norm.weight";
    switch (spec_.qk_norm) {
      case QkNorm::kNone:
        return;
      case QkNorm::kHead:
        weights_.q_norm = take_.constants(q, {spec_.key_dim});
        weights_.k_norm = take_.constants(k, {spec_.key_dim}, required_if(spec_.owns_entries()));
        return;
      case QkNorm::kOwnHead:
        weights_.q_norm = take_.constants(q, {spec_.key_dim, spec_.n_head});
        weights_.k_norm = take_.constants(k, {spec_.key_dim, spec_.n_kv_head});
        return;
      case QkNorm::kProjection:
        weights_.q_norm = take_.constants(q, {spec_.q_size()});
        weights_.k_norm = take_.constants(k, {spec_.k_size()});
        return;
    }
  }

  void load_feed_forward() {
    const FeedForwardSpec& spec = spec_.feed_forward;
    const std::int64_t n_ff = spec.width;
    const Presence of_bias = required_if(spec_.has_feed_forward_bias);
    ProductScales& scales = weights_.scales;
    if (spec.is_gate_in_up) {
      ggml_tensor* fused = matrix("ffn_up", {n_embd_, 2 * n_ff}, scales.up);
      scales.gate = scales.up;
      weights_.gate = views_.slice(fused, 0, n_ff);
      weights_.up = views_.slice(fused, n_ff, n_ff);
    } else {
      weights_.up = matrix("ffn_up", {n_embd_, n_ff}, scales.up);
      weights_.up_b = bias("ffn_up", n_ff, of_bias);
      if (spec.is_gated) {
        weights_.gate = matrix("ffn_gate", {n_embd_, n_ff}, scales.gate);
        weights_.gate_b = bias("ffn_gate", n_ff, of_bias);
      }
    }
    weights_.down = matrix("ffn_down", {n_ff, n_embd_}, scales.down);
    weights_.down_b = bias("ffn_down", n_embd_, of_bias);
  }

  void load_experts() {
    const FeedForwardSpec& spec = spec_.feed_forward;
    const std::int64_t n_ff = spec.width, n_expert = spec.n_expert, n_shared = spec.shared_width;
    const Presence of_bias = required_if(spec_.has_feed_forward_bias);
    const auto biases = [&](const char* name, std::int64_t n) {
      return take_.constants(blk_ + name + ".bias", {n, n_expert}, of_bias);
    };
    ProductScales& scales = weights_.scales;
    weights_.experts_norm = weights_.ffn_norm;
    weights_.router = take_.matrix(blk_ + "ffn_gate_inp.weight", {n_embd_, n_expert});
    weights_.router_b = bias("ffn_gate_inp", n_expert, of_bias);
    weights_.choice_b = bias("exp_probs_b", n_expert, Presence::kOptional);
    if (ggml_tensor* fused =
            take_.matrix(blk_ + "ffn_gate_up_exps.weight", {n_embd_, 2 * n_ff, n_expert}, Presence::kOptional)) {
      weights_.gate_experts = views_.slice(fused, 0, n_ff);
      weights_.up_experts = views_.slice(fused, n_ff, n_ff);
    } else {
      weights_.gate_experts = matrix("ffn_gate_exps", {n_embd_, n_ff, n_expert}, scales.gate_experts);
      weights_.up_experts = matrix("ffn_up_exps", {n_embd_, n_ff, n_expert}, scales.up_experts);
    }
    weights_.down_experts = matrix("ffn_down_exps", {n_ff, n_embd_, n_expert}, scales.down_experts);
    weights_.gate_experts_b = biases("ffn_gate_exps", n_ff);
    weights_.up_experts_b = biases("ffn_up_exps", n_ff);
    weights_.down_experts_b = biases("ffn_down_exps", n_embd_);
    if (n_shared == 0) return;
    if (spec.is_dense_beside) {
      load_dense_beside();
      return;
    }
    if (spec.has_shared_gate) {
      weights_.shared_gate = take_.matrix(blk_ + "ffn_gate_inp_shexp.weight", {n_embd_});
    }
    weights_.gate = matrix("ffn_gate_shexp", {n_embd_, n_shared}, scales.gate);
    weights_.up = matrix("ffn_up_shexp", {n_embd_, n_shared}, scales.up);
    weights_.down = matrix("ffn_down_shexp", {n_shared, n_embd_}, scales.down);
  }

  void load_dense_beside() {
    const std::int64_t n_shared = spec_.feed_forward.shared_width;
    weights_.experts_norm = take_.norm(blk_ + "pre_ffw_norm_2", n_embd_, false);
    weights_.experts_post_norm = take_.norm(blk_ + "post_ffw_norm_2", n_embd_, false);
    weights_.shared_post_norm = take_.norm(blk_ + "post_ffw_norm_1", n_embd_, false);
    weights_.router_scale = take_.constants(blk_ + "ffn_gate_inp.scale", {n_embd_});
    ProductScales& scales = weights_.scales;
    weights_.expert_scale = std::exchange(scales.down_experts, nullptr);  // applied to the routing weights
    weights_.gate = matrix("ffn_gate", {n_embd_, n_shared}, scales.gate);
    weights_.up = matrix("ffn_up", {n_embd_, n_shared}, scales.up);
    weights_.down = matrix("ffn_down", {n_shared, n_embd_}, scales.down);
  }

  // The file has the per-layer embeddings of all layers in the same tensors.
  void load_token_input() {
    const std::int64_t width = spec_.per_layer_embedding_dim, n_all = width * n_layer_, first = width * weights_.layer;
    ggml_tensor* rows = take_.matrix("per_layer_token_embd.weight", {n_all, n_vocab_});
    weights_.token_rows = views_.columns(rows, first, width);
    weights_.token_proj = views_.slice(take_.matrix("per_layer_model_proj.weight", {n_embd_, n_all}), first, width);
    weights_.token_proj_norm = take_.constants("per_layer_proj_norm.weight", {width});
    weights_.token_gate = take_.matrix(blk_ + "inp_gate.weight", {n_embd_, width});
    weights_.token_out = take_.matrix(blk_ + "proj.weight", {width, n_embd_});
    weights_.token_post_norm = take_.norm(blk_ + "post_norm", n_embd_, false);
  }

  void load_rope_factors() {
    if (spec_.rope.n_dims == 0 || spec_.rope.factors == RopeFactors::kNone) return;
    const std::int64_t n = spec_.rope.n_dims / 2;
    const Presence of_two = required_if(spec_.rope.factors == RopeFactors::kByContext);
    // There are two sets, for prompts up to the original context and beyond; the model's own context decides between
    // them.
    ggml_tensor* longer = take_.constants("rope_factors_long.weight", {n}, of_two);
    ggml_tensor* shorter = take_.constants("rope_factors_short.weight", {n}, of_two);
    weights_.rope_freqs = spec_.rope.is_extended ? longer : shorter;
    const Presence of_one = required_if(spec_.rope.factors == RopeFactors::kRequired);
    if (ggml_tensor* only = take_.constants("rope_freqs.weight", {n}, of_one)) weights_.rope_freqs = only;
    // Older files repeat the factors in every layer, or carry a buffer that nothing uses.
    if (ggml_tensor* own = take_.constants(blk_ + "rope_freqs.weight", {n}, Presence::kOptional)) {
      weights_.rope_freqs = own;
    }
    take_.constants(blk_ + "attn_rot_embd", {spec_.key_dim / 2}, Presence::kOptional);
  }

  TensorTaker& take_;
  Views& views_;
  Copies& copies_;
  const LayerSpec& spec_;
  std::int64_t n_embd_, n_vocab_;
  int n_layer_;
  std::string blk_;
  LayerWeights weights_;
};

}  // namespace

namespace {

// Returns pointers to the matrices of a layer, which may be const or not.
auto places_of_matrices(auto& w) {
  return std::vector{&w.query_a,  &w.wq,       &w.wk,        &w.wv,         &w.wo,         &w.latent,
                     &w.latent_k, &w.latent_v, &w.latent_kv, &w.conv_in,    &w.conv_out,   &w.state_gate,
                     &w.gate,     &w.up,       &w.down,      &w.token_proj, &w.token_gate, &w.token_out};
}

}  // namespace

std::vector<ggml_tensor*> LayerWeights::matrices() const {
  std::vector<ggml_tensor*> all;
  for (ggml_tensor* const* place : places_of_matrices(*this)) {
    if (*place != nullptr) all.push_back(*place);
  }
  return all;
}

std::vector<ggml_tensor**> LayerWeights::places_of_products() {
  std::vector<ggml_tensor**> places = places_of_matrices(*this);
  places.insert(places.end(), {&gate_experts, &up_experts, &down_experts});
  return places;
}

std::vector<ggml_tensor**> LayerWeights::places() {
  // clang-format off
  std::vector<ggml_tensor**> places = {
      &attn_norm.weight, &attn_norm.bias, &attn_post_norm.weight, &attn_post_norm.bias, &wq, &wk, &wv, &wo, &bq,
      &bk, &bv, &bo, &q_scales, &k_scales, &q_norm, &k_norm, &sink_logits, &query_a, &query_a_norm, &latent,
      &latent_norm, &latent_k, &latent_v, &latent_kv, &conv, &conv_b, &conv_in, &conv_out, &state_gate, &state_alpha, &state_beta,
      &state_decay, &state_decay_bias, &state_skip, &state_norm, &ffn_norm.weight, &ffn_norm.bias,
      &ffn_post_norm.weight, &ffn_post_norm.bias, &experts_norm.weight, &experts_norm.bias,
      &experts_post_norm.weight, &experts_post_norm.bias, &shared_post_norm.weight, &shared_post_norm.bias,
      &gate, &up, &down, &gate_b, &up_b, &down_b, &router, &router_b, &router_scale, &choice_b, &expert_scale,
      &gate_experts, &up_experts, &down_experts, &gate_experts_b, &up_experts_b, &down_experts_b, &shared_gate,
      &rope_freqs, &token_rows, &token_proj, &token_proj_norm, &token_gate, &token_out, &token_post_norm.weight,
      &token_post_norm.bias, &output_scale, &scales.wq, &scales.wk, &scales.wv, &scales.wo, &scales.conv_in,
      &scales.conv_out, &scales.state_gate, &scales.state_alpha, &scales.state_beta, &scales.gate, &scales.up,
      &scales.down, &scales.gate_experts, &scales.up_experts, &scales.down_experts};
  // clang-format on
  assert(places.size() == (sizeof(LayerWeights) - offsetof(LayerWeights, attn_norm)) / sizeof(ggml_tensor*));
  return places;
}

Weights load_weights(const GgufFile& file, const ModelSpec& spec) {
  TensorTaker take(file);
  Views views(spec.n_layer());
  Copies copies;
  const std::int64_t n_embd = spec.n_embd;

  Weights w;
  w.views = views.context();
  w.token_embd = take.matrix("token_embd.weight", {n_embd, spec.n_vocab});
  w.output_norm = take.norm(spec.output_norm_name, n_embd, spec.layers.front().has_norm_bias);
  w.output = take.matrix("output.weight", {n_embd, spec.n_vocab}, Presence::kOptional);
  w.output_b = take.constants("output.bias", {spec.n_vocab}, Presence::kOptional);
  w.logits_scale = take.constants("output.scale", {1}, Presence::kOptional);
  take.constants("output.input_scale", {1}, Presence::kOptional);
  if (w.output == nullptr) w.output = w.token_embd;
  for (int l = 0; l < spec.n_layer(); ++l) {
    w.layers.push_back(LayerLoader(take, views, copies, spec, l).load());
  }
  std::vector<std::string> skipped;
  for (int l = 0; l < spec.n_skipped_layers; ++l) skipped.push_back("blk." + std::to_string(spec.n_layer() + l) + ".");
  take.refuse_leftovers(skipped);
  w.copies = std::move(copies).all();
  return w;
}

void dequantize_row(const ggml_tensor* tensor, std::int64_t row, float* out) {
  std::vector<std::byte> together;
  const std::byte* src = stored_row(tensor, row, together);
  if (tensor->type == GGML_TYPE_F32) {
    std::memcpy(out, src, static_cast<std::size_t>(tensor->ne[0]) * sizeof(float));
  } else {
    ggml_get_type_traits(tensor->type)->to_float(src, out, tensor->ne[0]);
  }
}

}  // namespace winnow
