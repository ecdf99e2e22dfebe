#include "model/graph_builder.h"

#include <ggml.h>

namespace winnow {

ggml_tensor* GraphBuilder::rms_norm(ggml_tensor* x, ggml_tensor* weight, float eps) {
  return ggml_mul(context_, ggml_rms_norm(context_, x, eps), weight);
}

ggml_tensor* GraphBuilder::linear(ggml_tensor* weight, ggml_tensor* bias, ggml_tensor* x) {
  const PackedMatrix* packed = packed_ != nullptr ? packed_->find(weight) : nullptr;
  ggml_tensor* y = packed != nullptr ? packed_product(context_, *packed, x)
                                     : stored_product(context_, weight, x, compute_, rows_, quantised_);
  return bias != nullptr ? ggml_add(context_, y, bias) : y;
}

ggml_tensor* GraphBuilder::add_to(ggml_tensor* x, ggml_tensor* y) { return ggml_add_inplace(context_, x, y); }

ggml_tensor* GraphBuilder::rope(const RopeSpec& spec, ggml_tensor* x, ggml_tensor* freq_factors) {
  if (spec.n_dims == 0) return x;
  return ggml_rope_ext(context_, x, positions_, freq_factors, spec.n_dims, spec.mode, spec.n_ctx_orig, spec.base,
                       spec.scale, spec.yarn_ext_factor, spec.attn_factor, spec.yarn_beta_fast, spec.yarn_beta_slow);
}

ggml_tensor* GraphBuilder::self_attention(const LayerSpec& spec, const LayerWeights& weights, ggml_tensor* x) {
  const std::int64_t n_rows = x->ne[1];
  ggml_tensor* q = linear(weights.wq, weights.bq, x);
  ggml_tensor* k = linear(weights.wk, weights.bk, x);
  ggml_tensor* v = linear(weights.wv, weights.bv, x);
  q = ggml_reshape_3d(context_, q, spec.key_dim, spec.n_head, n_rows);
  k = ggml_reshape_3d(context_, k, spec.key_dim, spec.n_kv_head, n_rows);
  v = ggml_reshape_3d(context_, v, spec.value_dim, spec.n_kv_head, n_rows);
  if (weights.q_norm != nullptr) q = rms_norm(q, weights.q_norm, spec.norm_eps);
  if (weights.k_norm != nullptr) k = rms_norm(k, weights.k_norm, spec.norm_eps);
  ggml_tensor* q_rotated = rope(spec.rope, q, weights.rope_freqs);
  ggml_tensor* k_rotated = rope(spec.rope, k, weights.rope_freqs);
  ggml_tensor* y = attention_.attend(context_, weights.layer, q, q_rotated, k_rotated, v);
  return linear(weights.wo, weights.bo, y);
}

ggml_tensor* GraphBuilder::gated_feed_forward(const LayerSpec& spec, const LayerWeights& weights, ggml_tensor* x) {
  ggml_tensor* gate = linear(weights.gate, weights.gate_b, x);
  ggml_tensor* up = linear(weights.up, weights.up_b, x);
  ggml_tensor* h = spec.feed_forward.activation == Activation::kGelu ? ggml_geglu_split(context_, gate, up)
                                                                     : ggml_swiglu_split(context_, gate, up);
  return linear(weights.down, weights.down_b, h);
}

ggml_tensor* build_pre_norm_layer(GraphBuilder& graph, const LayerSpec& spec, const LayerWeights& weights,
                                  ggml_tensor* x) {
  const auto norm = [&](ggml_tensor* weight) { return graph.rms_norm(x, weight, spec.norm_eps); };
  x = graph.add_to(x, graph.self_attention(spec, weights, norm(weights.attn_norm)));
  return graph.add_to(x, graph.gated_feed_forward(spec, weights, norm(weights.ffn_norm)));
}

}  // namespace winnow
