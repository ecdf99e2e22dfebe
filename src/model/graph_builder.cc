#include "model/graph_builder.h"

#include <ggml.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

namespace winnow {
ggml_tensor* GraphBuilder::norm(const NormSpec& spec, const NormWeights& weights, ggml_tensor* x) {
  if (weights.weight == nullptr) return x;
  x = spec.kind == NormKind::kRms ? ops_.rms_norm(context_, spec, weights.weight, x)
                                  : ggml_mul(context_, ggml_norm(context_, x, spec.eps), weights.weight);
  return weights.bias != nullptr ? ggml_add(context_, x, weights.bias) : x;
}

ggml_tensor* GraphBuilder::input_norm(const NormSpec& spec, const NormWeights& weights, ggml_tensor* x) {
  const bool is_plain = weights.weight != nullptr && weights.bias == nullptr && spec.kind == NormKind::kRms;
  return is_plain ? ops_.input_norm(context_, spec, weights.weight, x) : norm(spec, weights, x);
}

ggml_tensor* GraphBuilder::linear(const Matrix& matrix, ggml_tensor* x) {
  return finished(matrix, ops_.product(context_, matrix.weight, x));
}

ggml_tensor* GraphBuilder::finished(const Matrix& matrix, ggml_tensor* product) {
  if (matrix.scale != nullptr) product = ggml_mul(context_, product, matrix.scale);
  return matrix.bias != nullptr ? ggml_add(context_, product, matrix.bias) : product;
}

GraphBuilder::Linears GraphBuilder::linears(const Matrix& first, const Matrix& second, const Matrix& third,
                                            ggml_tensor* x) {
  const Matrix matrices[] = {first, second, third};
  ggml_tensor *weights[3], *products[3], *y[3] = {};
  std::size_t n = 0;
  for (const Matrix& matrix : matrices) {
    if (matrix.weight != nullptr) weights[n++] = matrix.weight;
  }
  ops_.products(context_, {weights, n}, x, {products, n});
  n = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    if (matrices[i].weight == nullptr) continue;
    y[i] = finished(matrices[i], products[n++]);
  }
  return {y[0], y[1], y[2]};
}

ggml_tensor* GraphBuilder::scale(ggml_tensor* x, float factor) {
  return factor == 1 ? x : ggml_scale(context_, x, factor);
}

ggml_tensor* GraphBuilder::rope(const RopeSpec& spec, ggml_tensor* x, ggml_tensor* freq_factors) {
  if (spec.n_dims == 0) return x;
  return ggml_rope_ext(context_, x, positions_, freq_factors, spec.n_dims, spec.mode, spec.n_ctx_orig, spec.base,
                       spec.scale, spec.yarn_ext_factor, spec.attn_factor, spec.yarn_beta_fast, spec.yarn_beta_slow);
}

// x [n_head * key_dim, n_rows] -> [key_dim, n_head, n_rows], normalised.
ggml_tensor* GraphBuilder::split_heads(const LayerSpec& spec, ggml_tensor* x, int n_head, ggml_tensor* norm_weight) {
  const NormWeights weights{.weight = norm_weight};
  if (spec.qk_norm == QkNorm::kProjection) x = norm(spec.norm, weights, x);
  x = ggml_reshape_3d(context_, x, spec.key_dim, n_head, x->ne[1]);
  const bool is_each = spec.qk_norm == QkNorm::kHead || spec.qk_norm == QkNorm::kOwnHead;
  return is_each && !spec.is_norm_after_rope ? norm(spec.norm, weights, x) : x;
}

ggml_tensor* GraphBuilder::scale_by_temperature(const LayerSpec& spec, ggml_tensor* q) {
  if (spec.temperature == 0) return q;
  return ggml_mul(context_, q, ops_.temperatures(context_, spec, positions_));
}

// Keys and values are stored as every head reads them, not as the latent that they are made of: see docs/models.md.
GraphBuilder::Projection GraphBuilder::latent_attention(const LayerSpec& spec, const LayerWeights& weights,
                                                        ggml_tensor* x) {
  const std::int64_t n_rows = x->ne[1], n_head = spec.n_head, n_rotated = spec.rope.n_dims, rank = spec.latent_rank;
  const std::int64_t n_fixed = spec.key_dim - n_rotated;
  // Returns numbers first, ..., first + n - 1 of each part of every row.
  const auto slice = [&](ggml_tensor* parts, std::int64_t first, std::int64_t n) {
    return ggml_view_3d(context_, parts, n, parts->ne[1], n_rows, parts->nb[1], parts->nb[2],
                        static_cast<std::size_t>(first) * sizeof(float));
  };
  const auto normed = [&](ggml_tensor* weight, ggml_tensor* rows) { return norm(spec.norm, {.weight = weight}, rows); };
  ggml_tensor* query_rows = weights.query_a == nullptr ? x : normed(weights.query_a_norm, linear({weights.query_a}, x));
  ggml_tensor* q = linear({weights.wq, nullptr, weights.scales.wq}, query_rows);
  q = ggml_reshape_3d(context_, q, spec.key_dim, n_head, n_rows);
  ggml_tensor *q_rotated = slice(q, n_fixed, n_rotated), *q_fixed = slice(q, 0, n_fixed);

  ggml_tensor* made = ggml_reshape_3d(context_, linear({weights.latent}, x), rank + n_rotated, 1, n_rows);
  ggml_tensor* k_rotated = rope(spec.rope, slice(made, rank, n_rotated), nullptr);
  ggml_tensor* latent = normed(weights.latent_norm, ggml_cont_2d(context_, slice(made, 0, rank), rank, n_rows));
  ggml_tensor *k_fixed = nullptr, *v = nullptr;
  if (weights.latent_kv != nullptr) {
    ggml_tensor* both =
        ggml_reshape_3d(context_, linear({weights.latent_kv}, latent), n_fixed + spec.value_dim, n_head, n_rows);
    k_fixed = slice(both, 0, n_fixed);
    v = ggml_cont(context_, slice(both, n_fixed, spec.value_dim));
  } else {
    k_fixed = ggml_reshape_3d(context_, linear({weights.latent_k}, latent), n_fixed, n_head, n_rows);
    v = ggml_reshape_3d(context_, linear({weights.latent_v}, latent), spec.value_dim, n_head, n_rows);
  }
  // The rotated numbers come first, as in every other architecture.
  const auto joined = [&](ggml_tensor* rotated, ggml_tensor* fixed) {
    return ggml_concat(context_, rotated, fixed, 0);
  };
  k_rotated = ggml_repeat_4d(context_, k_rotated, n_rotated, n_head, n_rows, 1);
  ggml_tensor* y =
      sequences_->attend(context_, weights.layer, joined(q_rotated, q_fixed),
                         joined(rope(spec.rope, q_rotated, nullptr), q_fixed), joined(k_rotated, k_fixed), v);
  return {{weights.wo, weights.bo, weights.scales.wo}, y};
}

GraphBuilder::Projection GraphBuilder::self_attention(const LayerSpec& spec, const LayerWeights& weights,
                                                      ggml_tensor* x) {
  if (spec.latent_rank > 0) return latent_attention(spec, weights, x);
  const std::int64_t n_rows = x->ne[1];
  // A layer that attends to another's entries has no keys and values.
  const bool owns_entries = spec.owns_entries(), has_values = owns_entries && !spec.is_key_value;
  const ProductScales& scales = weights.scales;
  const Linears projected =
      linears({weights.wq, weights.bq, scales.wq}, owns_entries ? Matrix{weights.wk, weights.bk, scales.wk} : Matrix{},
              has_values ? Matrix{weights.wv, weights.bv, scales.wv} : Matrix{}, x);
  ggml_tensor *q = projected.first, *k = projected.second, *v = spec.is_key_value ? k : projected.third;
  if (weights.k_scales != nullptr) {
    q = ggml_mul(context_, q, weights.q_scales);
    k = ggml_mul(context_, k, weights.k_scales);
  }
  ggml_tensor* gate = nullptr;
  if (spec.has_output_gate) {  // a head's query, then its gate
    const std::size_t head = static_cast<std::size_t>(spec.key_dim) * sizeof(float);
    const auto half = [&](std::size_t offset) {
      ggml_tensor* part = ggml_view_3d(context_, q, spec.key_dim, spec.n_head, n_rows, 2 * head, q->nb[1], offset);
      return ggml_cont_2d(context_, part, spec.q_size(), n_rows);
    };
    gate = ggml_sigmoid(context_, half(head));
    q = half(0);
  }
  // With norms after RoPE, the queries before rotation, which eviction methods use, are normed as well. That is exact
  // except for weights that differ within a pair.
  const auto normed = [&](ggml_tensor* weight, ggml_tensor* rows) {
    return spec.is_norm_after_rope ? norm(spec.norm, {.weight = weight}, rows) : rows;
  };
  q = scale_by_temperature(spec, split_heads(spec, q, spec.n_head, weights.q_norm));
  ggml_tensor* q_rotated = normed(weights.q_norm, rope(spec.rope, q, weights.rope_freqs));
  q = normed(weights.q_norm, q);
  if (k != nullptr) {
    k = split_heads(spec, k, spec.n_kv_head, weights.k_norm);
    k = normed(weights.k_norm, rope(spec.rope, k, weights.rope_freqs));
    v = ggml_reshape_3d(context_, v, spec.value_dim, spec.n_kv_head, n_rows);
    if (spec.has_value_norm) v = ops_.rms_norm(context_, spec.norm, nullptr, v);
  }
  ggml_tensor* y = sequences_->attend(context_, weights.layer, q, q_rotated, k, v);
  if (gate != nullptr) y = ggml_mul(context_, y, gate);
  return {{weights.wo, weights.bo, scales.wo}, y};
}

GraphBuilder::Projection GraphBuilder::recurrence(const LayerSpec& spec, const LayerWeights& weights, ggml_tensor* x) {
  const auto recur = [&](RecurrentStep step, std::initializer_list<ggml_tensor*> inputs) {
    return sequences_->recur(context_, weights.layer, step, std::span(inputs.begin(), inputs.size()));
  };
  const ProductScales& scales = weights.scales;
  ggml_tensor* projected = linear({weights.conv_in, nullptr, scales.conv_in}, x);
  const Matrix output = {weights.conv_out, nullptr, scales.conv_out};
  if (spec.recurrence.kind == RecurrenceKind::kShortConvolution) {
    return {output, recur(RecurrentStep::kGatedConvolution, {projected})};
  }
  const std::int64_t n_values = spec.recurrence.n_values(), n_rows = x->ne[1];
  const auto normed = [&](ggml_tensor* y, std::int64_t n_parts) {  // normalises every part by itself
    y = ggml_reshape_3d(context_, y, n_values / n_parts, n_parts, n_rows);
    y = norm(spec.norm, {.weight = weights.state_norm}, y);
    return ggml_reshape_2d(context_, y, n_values, n_rows);
  };
  ggml_tensor* gate = linear({weights.state_gate, nullptr, scales.state_gate}, x);
  ggml_tensor* alpha = linear({weights.state_alpha, nullptr, scales.state_alpha}, x);
  if (spec.recurrence.kind == RecurrenceKind::kMamba2) {
    ggml_tensor* values = recur(RecurrentStep::kSiluConvolution, {projected});
    ggml_tensor* y = recur(RecurrentStep::kSelectiveScan, {values, alpha});
    y = normed(ggml_swiglu_split(context_, gate, y), spec.recurrence.n_key_heads);
    return {output, y};
  }
  ggml_tensor* beta = linear({weights.state_beta, nullptr, scales.state_beta}, x);
  ggml_tensor* qkv = recur(RecurrentStep::kSiluConvolution, {projected});
  ggml_tensor* y = normed(recur(RecurrentStep::kDeltaRule, {qkv, alpha, beta}), spec.recurrence.n_value_heads);
  return {output, ggml_swiglu_split(context_, gate, y)};
}

GraphBuilder::Projection GraphBuilder::dense_feed_forward(const FeedForwardSpec& spec, const LayerWeights& weights,
                                                          ggml_tensor* x) {
  const ProductScales& scales = weights.scales;
  const Matrix up_matrix = {weights.up, weights.up_b, scales.up}, down = {weights.down, weights.down_b, scales.down};
  if (!spec.is_gated) {
    ggml_tensor* up = linear(up_matrix, x);
    up = spec.activation == Activation::kGelu ? ggml_gelu(context_, up) : ggml_silu(context_, up);
    return {down, up};
  }
  const Linears made = linears({weights.gate, weights.gate_b, scales.gate}, up_matrix, {}, x);
  return {down, ops_.gated(context_, spec.activation, made.first, made.second)};
}

RoutedRows GraphBuilder::route(const LayerSpec& layer, const LayerWeights& weights, ggml_tensor* x, ggml_tensor* rows) {
  const FeedForwardSpec& spec = layer.feed_forward;
  const std::int64_t n_rows = x->ne[1];
  if (weights.router_scale != nullptr) {
    rows = scale(ops_.rms_norm(context_, layer.norm, weights.router_scale, x),
                 1.0F / std::sqrt(static_cast<float>(x->ne[0])));
  }
  ggml_tensor* scores = linear({weights.router, weights.router_b}, rows);  // [n_expert, n_rows]
  const bool is_sigmoid = spec.routing == Routing::kSigmoid || spec.routing == Routing::kNormalisedSigmoid;
  if (is_sigmoid) {
    scores = ggml_sigmoid(context_, scores);
  } else if (spec.routing != Routing::kSoftmaxOfChosen) {
    scores = ggml_soft_max(context_, scores);
  }
  ggml_tensor* to_choose = weights.choice_b == nullptr ? scores : ggml_add(context_, scores, weights.choice_b);
  ggml_tensor* chosen = ggml_argsort_top_k(context_, to_choose, spec.n_expert_used);  // [n_expert_used, n_rows]
  ggml_tensor* routing_weights =
      ggml_get_rows(context_, ggml_reshape_3d(context_, scores, 1, spec.n_expert, n_rows), chosen);
  routing_weights = ggml_reshape_2d(context_, routing_weights, spec.n_expert_used, n_rows);
  if (spec.routing == Routing::kSoftmaxOfChosen) routing_weights = ggml_soft_max(context_, routing_weights);
  if (spec.routing == Routing::kNormalisedSoftmax || spec.routing == Routing::kNormalisedSigmoid) {
    constexpr float kSmallestSum = 6.103515625e-5F;  // the smallest normal f16, as in libllama
    ggml_tensor* sum = ggml_clamp(context_, ggml_sum_rows(context_, routing_weights), kSmallestSum, INFINITY);
    routing_weights = ggml_div(context_, routing_weights, sum);
  }
  if (weights.expert_scale != nullptr) {
    ggml_tensor* scales = ggml_reshape_2d(context_, weights.expert_scale, 1, spec.n_expert);
    scales = ggml_get_rows(context_, scales,
                           ggml_reshape_1d(context_, ggml_cont(context_, chosen), n_rows * spec.n_expert_used));
    routing_weights =
        ggml_mul(context_, routing_weights, ggml_reshape_2d(context_, scales, spec.n_expert_used, n_rows));
  }
  return {.chosen = chosen, .routing_weights = scale(routing_weights, spec.share_scale)};
}

ggml_tensor* GraphBuilder::add_shared_expert(const LayerSpec& spec, const LayerWeights& weights, ggml_tensor* rows,
                                             ggml_tensor* y) {
  ggml_tensor* shared = linear(dense_feed_forward(spec.feed_forward, weights, rows));
  if (weights.shared_gate != nullptr) {
    shared = ggml_mul(context_, shared, ggml_sigmoid(context_, linear({weights.shared_gate}, rows)));
  }
  return ggml_add(context_, norm(spec.norm, weights.experts_post_norm, y),
                  norm(spec.norm, weights.shared_post_norm, shared));
}

ggml_tensor* GraphBuilder::expert_feed_forward(const LayerSpec& spec, const LayerWeights& weights, ggml_tensor* x) {
  const FeedForwardSpec& ffn = spec.feed_forward;
  ggml_tensor* rows = norm(spec.norm, weights.experts_norm, x);
  ggml_tensor* y = ops_.experts(context_, ffn, weights, route(spec, weights, x, rows), rows);
  if (weights.down == nullptr) return y;
  if (ffn.is_dense_beside) rows = norm(spec.norm, weights.ffn_norm, x);
  return add_shared_expert(spec, weights, rows, y);
}

ggml_tensor* GraphBuilder::add_residual(const LayerSpec& spec, const NormWeights& post_norm, ggml_tensor* x,
                                        ggml_tensor* y) {
  return ggml_add_inplace(context_, x, scale(norm(spec.norm, post_norm, y), spec.residual_scale));
}

ggml_tensor* GraphBuilder::add_residual(const LayerSpec& spec, const NormWeights& post_norm, ggml_tensor* x,
                                        const Projection& y) {
  const bool is_whole = y.matrix.bias == nullptr && y.matrix.scale == nullptr;
  const bool is_plain = is_whole && post_norm.weight == nullptr && spec.residual_scale == 1;
  return is_plain ? ops_.add_product(context_, x, y.matrix.weight, y.rows)
                  : add_residual(spec, post_norm, x, linear(y));
}

ggml_tensor* GraphBuilder::attention_block(const LayerSpec& spec, const LayerWeights& weights, ggml_tensor* x,
                                           ggml_tensor* rows) {
  const bool is_recurrent = spec.kind == LayerKind::kRecurrent;
  return add_residual(spec, weights.attn_post_norm, x,
                      is_recurrent ? recurrence(spec, weights, rows) : self_attention(spec, weights, rows));
}

void GraphBuilder::set_per_layer_tokens(const ModelSpec& spec, const Weights& weights, ggml_tensor* tokens) {
  tokens_ = tokens;
  embedded_ = scale(ggml_get_rows(context_, weights.token_embd, tokens), spec.embedding_scale);
}

ggml_tensor* GraphBuilder::finish_layer(const LayerSpec& spec, const LayerWeights& weights, ggml_tensor* x) {
  if (spec.per_layer_embedding_dim > 0) {
    const auto n_embd = static_cast<float>(x->ne[0]), width = static_cast<float>(spec.per_layer_embedding_dim);
    ggml_tensor* made = scale(linear({weights.token_proj}, embedded_), 1.0F / std::sqrt(n_embd));
    made = norm(spec.norm, {.weight = weights.token_proj_norm}, made);
    ggml_tensor* own = scale(ggml_get_rows(context_, weights.token_rows, tokens_), std::sqrt(width));
    ggml_tensor* brought = scale(ggml_add(context_, made, own), 1.0F / std::sqrt(2.0F));
    ggml_tensor* gate = ggml_gelu(context_, linear({weights.token_gate}, x));
    ggml_tensor* y = linear({weights.token_out}, ggml_mul(context_, gate, brought));
    x = add_residual(spec, weights.token_post_norm, x, y);
  }
  return weights.output_scale == nullptr ? x : ggml_mul_inplace(context_, x, weights.output_scale);
}

ggml_tensor* GraphBuilder::layer(const LayerSpec& spec, const LayerWeights& weights, ggml_tensor* x) {
  ggml_tensor* rows = input_norm(spec.norm, weights.attn_norm, x);
  x = attention_block(spec, weights, x, rows);
  if (spec.feed_forward.n_expert > 0) {
    x = add_residual(spec, weights.ffn_post_norm, x, expert_feed_forward(spec, weights, x));
  } else {
    if (!spec.is_parallel) rows = input_norm(spec.norm, weights.ffn_norm, x);
    x = add_residual(spec, weights.ffn_post_norm, x, dense_feed_forward(spec.feed_forward, weights, rows));
  }
  return finish_layer(spec, weights, x);
}

ggml_tensor* GraphBuilder::attention(const LayerSpec& spec, const LayerWeights& weights, ggml_tensor* x) {
  return self_attention(spec, weights, input_norm(spec.norm, weights.attn_norm, x)).rows;
}

RoutedRows GraphBuilder::attention_and_router(const LayerSpec& spec, const LayerWeights& weights, ggml_tensor* x) {
  x = attention_block(spec, weights, x, norm(spec.norm, weights.attn_norm, x));
  return route(spec, weights, x, norm(spec.norm, weights.experts_norm, x));
}

ggml_tensor* GraphBuilder::expert_ffn(const LayerSpec& spec, const LayerWeights& weights, ggml_tensor* x,
                                      ggml_tensor* sums, ExpertProducts& experts, ggml_tensor* routing_weights) {
  ggml_tensor* rows = norm(spec.norm, weights.experts_norm, experts.gather(x));
  return experts.add_weighted(sums, experts.feed_forward(ops_, spec.feed_forward, weights, rows), routing_weights);
}

ggml_tensor* GraphBuilder::combine_experts(const LayerSpec& spec, const LayerWeights& weights, ggml_tensor* x,
                                           ggml_tensor* sums) {
  if (weights.down != nullptr) {
    sums = add_shared_expert(spec, weights, norm(spec.norm, weights.ffn_norm, x), sums);
  }
  return finish_layer(spec, weights, add_residual(spec, weights.ffn_post_norm, x, sums));
}

ggml_tensor* GraphBuilder::output_norm(const ModelSpec& spec, const Weights& weights, ggml_tensor* x) {
  return norm(spec.norm, weights.output_norm, x);
}

ggml_tensor* GraphBuilder::logits(const ModelSpec& spec, const Weights& weights, ggml_tensor* x) {
  ggml_tensor* y = linear({weights.output, weights.output_b, weights.logits_scale}, output_norm(spec, weights, x));
  if (spec.logit_soft_cap > 0) {
    y = ggml_scale(context_, ggml_tanh(context_, ggml_scale(context_, y, 1.0F / spec.logit_soft_cap)),
                   spec.logit_soft_cap);
  }
  return scale(y, spec.logit_scale);
}

}  // namespace winnow
