#include "model/layer_ops.h"

#include <ggml.h>

#include <cassert>
#include <cmath>
#include <cstdint>

#include "kernels/products/rms_norm.h"
#include "model/expert_products.h"

namespace winnow {
namespace {

// Computes dst [n_rows] = 1 + temperature * ln(1 + floor(position / length)) from src[0], the positions [n_rows].
void run_temperature(ggml_tensor* dst, int ith, int /*nth*/, void* userdata) {
  if (ith != 0) return;
  const auto& spec = *static_cast<const LayerSpec*>(userdata);
  const auto* positions = static_cast<const std::int32_t*>(dst->src[0]->data);
  auto* out = static_cast<float*>(dst->data);
  for (std::int64_t r = 0; r < dst->ne[2]; ++r) {
    const std::int32_t periods = positions[r] / spec.temperature_length;
    out[r] = 1.0F + spec.temperature * std::log(1.0F + static_cast<float>(periods));
  }
}

// Computes dst, the rows of src[0] with a root mean square of 1, times src[1] if there is one: [n], or a row for each
// of src[0]->ne[1].
void run_rms_norm(ggml_tensor* dst, int ith, int nth, void* userdata) {
  const ggml_tensor *x = dst->src[0], *weight = dst->src[1];
  const float eps = static_cast<const NormSpec*>(userdata)->eps;
  const std::int64_t n = x->ne[0], n_rows = ggml_nrows(x);
  const auto row_of = [n](const ggml_tensor* tensor, std::int64_t row) {
    return static_cast<float*>(tensor->data) + row * n;
  };
  for (std::int64_t row = n_rows * ith / nth; row < n_rows * (ith + 1) / nth; ++row) {
    kernels::rms_norm_row(row_of(x, row), weight == nullptr ? nullptr : row_of(weight, row % x->ne[1] % weight->ne[1]),
                          eps, static_cast<int>(n), row_of(dst, row));
  }
}

}  // namespace

ggml_tensor* LayerOps::gated(ggml_context* context, Activation activation, ggml_tensor* gate, ggml_tensor* up) {
  constexpr float kAlpha = 1.702F, kLimit = 7.0F;  // gpt-oss's
  switch (activation) {
    case Activation::kSilu:
      return ggml_swiglu_split(context, gate, up);
    case Activation::kGelu:
      return ggml_geglu_split(context, gate, up);
    case Activation::kClampedSilu:
      return ggml_swiglu_oai(context, gate, up, kAlpha, kLimit);
  }
  return nullptr;
}

ggml_tensor* LayerOps::add_product(ggml_context* context, ggml_tensor* x, ggml_tensor* weight, ggml_tensor* y) {
  return ggml_add_inplace(context, x, product(context, weight, y));
}

void LayerOps::products(ggml_context* context, std::span<ggml_tensor* const> weights, ggml_tensor* x,
                        std::span<ggml_tensor*> y) {
  for (std::size_t i = 0; i < weights.size(); ++i) y[i] = product(context, weights[i], x);
}

ggml_tensor* CpuOps::product(ggml_context* context, ggml_tensor* weight, ggml_tensor* x) {
  const PackedMatrix* packed = packed_ != nullptr ? packed_->find(weight) : nullptr;
  return packed != nullptr ? packed_product(context, *packed, x)
                           : stored_product(context, weight, x, compute_, quantised_);
}

ggml_tensor* CpuOps::rms_norm(ggml_context* context, const NormSpec& spec, ggml_tensor* weight, ggml_tensor* x) {
  assert(ggml_is_contiguous(x));
  ggml_tensor* inputs[] = {x, weight};
  return ggml_custom_4d(context, GGML_TYPE_F32, x->ne[0], x->ne[1], x->ne[2], x->ne[3], inputs,
                        weight == nullptr ? 1 : 2, run_rms_norm, GGML_N_TASKS_MAX, const_cast<NormSpec*>(&spec));
}

ggml_tensor* CpuOps::temperatures(ggml_context* context, const LayerSpec& spec, ggml_tensor* positions) {
  return ggml_custom_4d(context, GGML_TYPE_F32, 1, 1, positions->ne[0], 1, &positions, 1, run_temperature, 1,
                        const_cast<LayerSpec*>(&spec));
}

ggml_tensor* CpuOps::experts(ggml_context* context, const FeedForwardSpec& spec, const LayerWeights& weights,
                             const RoutedRows& routed, ggml_tensor* x) {
  ExpertProducts products(context, routed.chosen, spec.n_expert, compute_);
  ggml_tensor* given = products.feed_forward(*this, spec, weights, products.gather(x));
  return products.weighted_sum(given, routed.routing_weights);
}

ggml_tensor* GgmlOps::product(ggml_context* context, ggml_tensor* weight, ggml_tensor* x) {
  return ggml_mul_mat(context, weight, x);
}

ggml_tensor* GgmlOps::rms_norm(ggml_context* context, const NormSpec& spec, ggml_tensor* weight, ggml_tensor* x) {
  ggml_tensor* normed = ggml_rms_norm(context, x, spec.eps);
  return weight == nullptr ? normed : ggml_mul(context, normed, weight);
}

// Positions stay below 2^24, so float32 holds them exactly.
ggml_tensor* GgmlOps::temperatures(ggml_context* context, const LayerSpec& spec, ggml_tensor* positions) {
  ggml_tensor* rows = ggml_reshape_3d(context, ggml_cast(context, positions, GGML_TYPE_F32), 1, 1, positions->ne[0]);
  // Half a position more keeps the rounded quotient on the right side of a whole number.
  const auto length = static_cast<float>(spec.temperature_length);
  ggml_tensor* periods = ggml_floor(context, ggml_scale_bias(context, rows, 1.0F / length, 0.5F / length));
  ggml_tensor* logs = ggml_log(context, ggml_scale_bias(context, periods, 1.0F, 1.0F));
  return ggml_scale_bias(context, logs, spec.temperature, 1.0F);
}

ggml_tensor* GgmlOps::experts(ggml_context* context, const FeedForwardSpec& spec, const LayerWeights& weights,
                              const RoutedRows& routed, ggml_tensor* x) {
  const std::int64_t n_rows = x->ne[1], n_used = routed.chosen->ne[0];
  const auto product = [&](ggml_tensor* matrices, ggml_tensor* biases, ggml_tensor* scales, ggml_tensor* rows) {
    ggml_tensor* y = ggml_mul_mat_id(context, matrices, rows, routed.chosen);  // [n_out, n_expert_used, n_rows]
    if (scales != nullptr) {
      ggml_tensor* chosen = ggml_reshape_1d(context, ggml_cont(context, routed.chosen), n_used * n_rows);
      ggml_tensor* of_rows = ggml_get_rows(context, ggml_reshape_2d(context, scales, 1, scales->ne[0]), chosen);
      y = ggml_mul(context, y, ggml_reshape_3d(context, of_rows, 1, n_used, n_rows));
    }
    return biases == nullptr ? y : ggml_add_id(context, y, biases, routed.chosen);
  };
  ggml_tensor* rows = ggml_reshape_3d(context, x, x->ne[0], 1, n_rows);
  const ProductScales& scales = weights.scales;
  ggml_tensor* gate = product(weights.gate_experts, weights.gate_experts_b, scales.gate_experts, rows);
  ggml_tensor* up = product(weights.up_experts, weights.up_experts_b, scales.up_experts, rows);
  // Not of a derived class: it may be for matrices, and make rows that ggml's products of experts do not read.
  rows = LayerOps::gated(context, spec.activation, gate, up);
  ggml_tensor* given =
      ggml_mul(context, product(weights.down_experts, weights.down_experts_b, scales.down_experts, rows),
               ggml_reshape_3d(context, routed.routing_weights, 1, n_used, n_rows));
  ggml_tensor* sum = nullptr;
  for (std::int64_t i = 0; i < n_used; ++i) {
    ggml_tensor* one =
        ggml_view_2d(context, given, given->ne[0], n_rows, given->nb[2], static_cast<std::size_t>(i) * given->nb[1]);
    sum = sum == nullptr ? one : ggml_add(context, sum, one);
  }
  return sum;
}

}  // namespace winnow
