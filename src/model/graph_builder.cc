#include "model/graph_builder.h"

#include <ggml.h>

namespace winnow {

ggml_tensor* GraphBuilder::rms_norm(ggml_tensor* x, ggml_tensor* weight) {
  return ggml_mul(context_, ggml_rms_norm(context_, x, hparams_.norm_eps), weight);
}

ggml_tensor* GraphBuilder::linear(ggml_tensor* weight, ggml_tensor* bias, ggml_tensor* x) {
  const PackedMatrix* packed = packed_ != nullptr ? packed_->find(weight) : nullptr;
  ggml_tensor* y = packed != nullptr ? packed_product(context_, *packed, x)
                                     : stored_product(context_, weight, x, compute_, quantised_);
  return bias != nullptr ? ggml_add(context_, y, bias) : y;
}

ggml_tensor* GraphBuilder::add_to(ggml_tensor* x, ggml_tensor* y) { return ggml_add_inplace(context_, x, y); }

ggml_tensor* GraphBuilder::rope(ggml_tensor* x, ggml_tensor* freq_factors) {
  return ggml_rope_ext(context_, x, positions_, freq_factors, hparams_.n_rot, hparams_.rope_mode, hparams_.n_ctx_orig,
                       hparams_.rope_base, hparams_.rope_scale, hparams_.yarn_ext_factor, hparams_.rope_attn_factor,
                       hparams_.yarn_beta_fast, hparams_.yarn_beta_slow);
}

ggml_tensor* GraphBuilder::self_attention(const LayerWeights& weights, ggml_tensor* x) {
  const std::int64_t n_rows = x->ne[1];
  ggml_tensor* q = linear(weights.wq, weights.bq, x);
  ggml_tensor* k = linear(weights.wk, weights.bk, x);
  ggml_tensor* v = linear(weights.wv, weights.bv, x);
  q = ggml_reshape_3d(context_, q, hparams_.head_dim, hparams_.n_head, n_rows);
  k = ggml_reshape_3d(context_, k, hparams_.head_dim, hparams_.n_kv_head, n_rows);
  v = ggml_reshape_3d(context_, v, hparams_.head_dim, hparams_.n_kv_head, n_rows);
  if (weights.q_norm != nullptr) q = rms_norm(q, weights.q_norm);
  if (weights.k_norm != nullptr) k = rms_norm(k, weights.k_norm);
  ggml_tensor* q_rotated = rope(q, weights.rope_freqs);
  ggml_tensor* k_rotated = rope(k, weights.rope_freqs);
  ggml_tensor* y = attention_.attend(context_, weights.layer, q, q_rotated, k_rotated, v);
  return linear(weights.wo, weights.bo, y);
}

ggml_tensor* GraphBuilder::gated_feed_forward(const LayerWeights& weights, ggml_tensor* x) {
  ggml_tensor* gate = linear(weights.gate, weights.gate_b, x);
  ggml_tensor* up = linear(weights.up, weights.up_b, x);
  ggml_tensor* h = hparams_.activation == Activation::kGelu ? ggml_geglu_split(context_, gate, up)
                                                            : ggml_swiglu_split(context_, gate, up);
  return linear(weights.down, weights.down_b, h);
}

ggml_tensor* build_pre_norm_layer(GraphBuilder& graph, const LayerWeights& weights, ggml_tensor* x) {
  x = graph.add_to(x, graph.self_attention(weights, graph.rms_norm(x, weights.attn_norm)));
  return graph.add_to(x, graph.gated_feed_forward(weights, graph.rms_norm(x, weights.ffn_norm)));
}

}  // namespace winnow
