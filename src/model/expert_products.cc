#include "model/expert_products.h"

#include <ggml-cpu.h>
#include <ggml.h>

#include <algorithm>

#include "kernels/products/quantised_product.h"
#include "model/compute.h"
#include "model/interleaved_weights.h"
#include "model/layer_ops.h"
#include "model/quantised_rows.h"

namespace winnow {
namespace {

using kernels::RowBlock;

// The format of rows for products with weights of a type: a ggml_type, or this.
constexpr int kRowBlocks = -1;  // kernels::RowBlock

std::int32_t* integers(const ggml_tensor* tensor) { return static_cast<std::int32_t*>(tensor->data); }

// Writes the plan to dst, i32: first_slot [n_expert + 1], row_of [n_slots], slot_of [n_rows][n_used].
void run_plan(ggml_tensor* dst, int ith, int /*nth*/, void* /*userdata*/) {
  if (ith != 0) return;
  const ggml_tensor* chosen = dst->src[0];
  const std::int64_t n_used = chosen->ne[0], n_rows = chosen->ne[1], n_slots = n_used * n_rows;
  const std::int64_t n_expert = dst->ne[0] - 1 - 2 * n_slots;
  std::int32_t* first_slot = integers(dst);
  std::int32_t *row_of = first_slot + n_expert + 1, *slot_of = row_of + n_slots;
  const auto expert_of = [&](std::int64_t row, std::int64_t i) {
    const char* at = static_cast<const char*>(chosen->data) + static_cast<std::size_t>(row) * chosen->nb[1] +
                     static_cast<std::size_t>(i) * chosen->nb[0];
    return *reinterpret_cast<const std::int32_t*>(at);
  };
  const auto for_each = [&](auto&& body) {
    for (std::int64_t row = 0; row < n_rows; ++row) {
      for (std::int64_t i = 0; i < n_used; ++i) body(row, i, expert_of(row, i));
    }
  };
  // A counting sort, which keeps an expert's rows in their order.
  std::fill_n(first_slot, n_expert + 1, 0);
  for_each([&](std::int64_t, std::int64_t, std::int32_t e) { ++first_slot[e + 1]; });
  for (std::int64_t e = 0; e < n_expert; ++e) first_slot[e + 1] += first_slot[e];
  for_each([&](std::int64_t row, std::int64_t i, std::int32_t e) {
    const std::int32_t slot = first_slot[e]++;
    row_of[slot] = static_cast<std::int32_t>(row);
    slot_of[row * n_used + i] = slot;
  });
  for (std::int64_t e = n_expert; e > 0; --e) first_slot[e] = first_slot[e - 1];
  first_slot[0] = 0;
}

std::size_t row_bytes(int format, std::int64_t n) {
  return format == kRowBlocks ? static_cast<std::size_t>(n / kernels::kRowBlock) * sizeof(RowBlock)
                              : ggml_row_size(static_cast<ggml_type>(format), n);
}

// Converts dst->src[0], x, to row blocks.
void run_to_blocks(ggml_tensor* dst, int ith, int nth, void* /*userdata*/) {
  const ggml_tensor* x = dst->src[0];
  const std::int64_t first = x->ne[1] * ith / nth, last = x->ne[1] * (ith + 1) / nth;
  kernels::quantise_rows(static_cast<const float*>(x->data) + first * x->ne[0], x->ne[0], first, last - first,
                         {reinterpret_cast<RowBlock*>(aligned_rows(dst)), x->ne[1]});
}

// Converts dst->src[0], x, to the type with which ggml multiplies dst->src[1], the weights.
void run_to_type(ggml_tensor* dst, int ith, int nth, void* /*userdata*/) {
  const ggml_tensor* x = dst->src[0];
  const ggml_type type = ggml_get_type_traits_cpu(dst->src[1]->type)->vec_dot_type;
  const ggml_from_float_t convert = ggml_get_type_traits_cpu(type)->from_float;
  const std::size_t bytes = row_bytes(type, x->ne[0]);
  for (std::int64_t r = x->ne[1] * ith / nth; r < x->ne[1] * (ith + 1) / nth; ++r) {
    const float* row = static_cast<const float*>(x->data) + r * x->ne[0];
    std::byte* out = aligned_rows(dst) + static_cast<std::size_t>(r) * bytes;
    if (type == GGML_TYPE_F32) {
      std::copy_n(row, x->ne[0], reinterpret_cast<float*>(out));
    } else {
      convert(row, out, x->ne[0]);
    }
  }
}

// One product node: weights, rows, first slots, and biases and factors if there are any.
struct Product {
  Product(const ggml_tensor* dst, Compute& the_compute)
      : compute(the_compute),
        weights(dst->src[0]),
        rows(dst->src[1]),
        biases(dst->src[3]),
        scales(dst->src[4]),
        n_in(weights->ne[0]),
        n_out(weights->ne[1]),
        n_expert(weights->ne[2]),
        first_slot(integers(dst->src[2])),
        y(static_cast<float*>(dst->data)) {}

  // The work of an expert that has rows: slots [slot, slot + n). `next` is the weights of the next such expert, or
  // null.
  struct Part {
    const std::byte *weights, *next;
    std::int64_t slot, n;
  };

  // Calls body(part) for every expert that has rows, then multiplies outputs [first, last) by its factor and adds its
  // biases.
  void for_each_expert(std::int64_t first, std::int64_t last, auto&& body) const {
    if (first >= last) return;
    for (std::int64_t e = with_rows(0); e < n_expert;) {
      const std::int64_t slot = first_slot[e], n = first_slot[e + 1] - slot, next = with_rows(e + 1);
      compute.count_expert_bytes(static_cast<std::uint64_t>(last - first) * ggml_row_size(weights->type, n_in));
      body(Part{weights_of(e), next < n_expert ? weights_of(next) : nullptr, slot, n});
      for (std::int64_t s = slot; s < slot + n; ++s) {
        if (scales != nullptr) {
          const float scale = static_cast<const float*>(scales->data)[e];
          for (std::int64_t i = first; i < last; ++i) y[s * n_out + i] *= scale;
        }
        if (biases != nullptr) {
          const float* bias = static_cast<const float*>(biases->data) + e * n_out;
          for (std::int64_t i = first; i < last; ++i) y[s * n_out + i] += bias[i];
        }
      }
      e = next;
    }
  }

  // Returns the first of the experts from e on that has rows, or n_expert if none has.
  std::int64_t with_rows(std::int64_t e) const {
    while (e < n_expert && first_slot[e] == first_slot[e + 1]) ++e;
    return e;
  }
  const std::byte* weights_of(std::int64_t expert) const {
    return static_cast<const std::byte*>(weights->data) + static_cast<std::size_t>(expert) * weights->nb[2];
  }
  Compute& compute;
  const ggml_tensor *weights, *rows, *biases, *scales;
  std::int64_t n_in, n_out, n_expert;
  const std::int32_t* first_slot;  // [n_expert + 1]
  float* y;                        // [n_slots][n_out]
};

void run_blocks(ggml_tensor* dst, int ith, int nth, void* userdata) {
  auto& compute = *static_cast<Compute*>(userdata);
  compute.guard([&] {
    const Product p(dst, compute);
    const auto blocks = *kernels::weight_blocks(ggml_type_name(p.weights->type));
    const OutputPart outputs(p.n_out, ith, nth);
    const kernels::RowChunks<const RowBlock> rows{reinterpret_cast<const RowBlock*>(aligned_rows(p.rows)), dst->ne[1]};
    const std::size_t skipped = static_cast<std::size_t>(outputs.first) * p.weights->nb[1];
    p.for_each_expert(outputs.first, outputs.last, [&](const Product::Part& part) {
      kernels::quantised_product(blocks, {.weights = part.weights,
                                          .next = part.next == nullptr ? nullptr : part.next + skipped,
                                          .weight_stride = p.weights->nb[1],
                                          .n_out = p.n_out,
                                          .first = outputs.first,
                                          .last = outputs.last,
                                          .rows = rows,
                                          .first_row = part.slot,
                                          .n_rows = part.n,
                                          .n_in = p.n_in,
                                          .y = p.y + part.slot * p.n_out,
                                          .y_stride = p.n_out,
                                          .layout = layout_of(p.weights)});
    });
  });
}

// Computes with ggml's products of two rows, for the types that have no kernel here.
void run_dots(ggml_tensor* dst, int ith, int nth, void* userdata) {
  auto& compute = *static_cast<Compute*>(userdata);
  compute.guard([&] {
    constexpr std::int64_t kGrain = 16;  // weight rows that stay in the cache while all rows pass
    const Product p(dst, compute);
    const ggml_type_traits_cpu* traits = ggml_get_type_traits_cpu(p.weights->type);
    const std::size_t bytes = row_bytes(traits->vec_dot_type, p.n_in);
    const std::byte* rows = aligned_rows(p.rows);
    const std::int64_t first = p.n_out * ith / nth, last = p.n_out * (ith + 1) / nth;
    p.for_each_expert(first, last, [&](const Product::Part& part) {
      for (std::int64_t begin = first; begin < last; begin += kGrain) {
        for (std::int64_t s = part.slot; s < part.slot + part.n; ++s) {
          for (std::int64_t i = begin; i < std::min(last, begin + kGrain); ++i) {
            traits->vec_dot(static_cast<int>(p.n_in), p.y + s * p.n_out + i, 0,
                            part.weights + static_cast<std::size_t>(i) * p.weights->nb[1], 0,
                            rows + static_cast<std::size_t>(s) * bytes, 0, 1);
          }
        }
      }
    });
  });
}

void run_weighted_sum(ggml_tensor* dst, int ith, int nth, void* /*userdata*/) {
  const ggml_tensor* y = dst->src[0];
  const ggml_tensor* routing_weights = dst->src[1];
  const std::int32_t* slot_of = integers(dst->src[2]);
  const std::int64_t n = dst->ne[0], n_rows = dst->ne[1], n_used = routing_weights->ne[0];
  for (std::int64_t r = n_rows * ith / nth; r < n_rows * (ith + 1) / nth; ++r) {
    float* sum = static_cast<float*>(dst->data) + r * n;
    std::fill_n(sum, n, 0.0F);
    for (std::int64_t i = 0; i < n_used; ++i) {
      const float weight = static_cast<const float*>(routing_weights->data)[r * n_used + i];
      const float* of_expert = static_cast<const float*>(y->data) + slot_of[r * n_used + i] * n;
      for (std::int64_t c = 0; c < n; ++c) sum[c] += weight * of_expert[c];
    }
  }
}

// dst is src[0], the sums. The threads divide the columns, since a row may have several slots.
void run_add_weighted(ggml_tensor* dst, int ith, int nth, void* /*userdata*/) {
  const ggml_tensor* y = dst->src[1];
  const auto* routing_weights = static_cast<const float*>(dst->src[2]->data);
  const std::int32_t* row_of = integers(dst->src[3]);
  const std::int64_t n = y->ne[0], first = n * ith / nth, last = n * (ith + 1) / nth;
  for (std::int64_t s = 0; s < y->ne[1]; ++s) {
    float* sum = static_cast<float*>(dst->data) + row_of[s] * n;
    const float* of_expert = static_cast<const float*>(y->data) + s * n;
    for (std::int64_t c = first; c < last; ++c) sum[c] += routing_weights[s] * of_expert[c];
  }
}

}  // namespace

ExpertProducts::ExpertProducts(ggml_context* context, ggml_tensor* chosen, std::int64_t n_expert, Compute& compute)
    : context_(context), compute_(compute) {
  const std::int64_t n_slots = chosen->ne[0] * chosen->ne[1];
  ggml_tensor* plan =
      ggml_custom_4d(context, GGML_TYPE_I32, n_expert + 1 + 2 * n_slots, 1, 1, 1, &chosen, 1, run_plan, 1, nullptr);
  const auto part = [&](std::int64_t first, std::int64_t n) {
    return ggml_view_1d(context, plan, n, static_cast<std::size_t>(first) * sizeof(std::int32_t));
  };
  slots_ = {.first_slot = part(0, n_expert + 1), .row_of = part(n_expert + 1, n_slots)};
  slot_of_ = part(n_expert + 1 + n_slots, n_slots);
}

ExpertProducts::ExpertProducts(ggml_context* context, const ExpertSlots& slots, Compute& compute)
    : context_(context), compute_(compute), slots_(slots) {}

ggml_tensor* ExpertProducts::gather(ggml_tensor* x) { return ggml_get_rows(context_, x, slots_.row_of); }

ggml_tensor* ExpertProducts::converted(ggml_tensor* x, ggml_tensor* weights, int format) {
  if (converted_of_ == x && converted_format_ == format) return converted_;
  const std::size_t bytes = static_cast<std::size_t>(x->ne[1]) * row_bytes(format, x->ne[0]) + alignof(RowBlock);
  ggml_tensor* args[2] = {x, weights};
  converted_ = ggml_custom_4d(context_, GGML_TYPE_I8, static_cast<std::int64_t>(bytes), 1, 1, 1, args, 2,
                              format == kRowBlocks ? run_to_blocks : run_to_type, GGML_N_TASKS_MAX, nullptr);
  converted_of_ = x;
  converted_format_ = format;
  return converted_;
}

ggml_tensor* ExpertProducts::product(ggml_tensor* weights, ggml_tensor* biases, ggml_tensor* scales, ggml_tensor* x) {
  const auto blocks = kernels::weight_blocks(ggml_type_name(weights->type));
  int format = ggml_get_type_traits_cpu(weights->type)->vec_dot_type;
  ggml_custom_op_t run = run_dots;
  if (blocks && kernels::has_quantised_products()) {
    format = kRowBlocks, run = run_blocks;
  }
  ggml_tensor* args[5] = {weights, converted(x, weights, format), slots_.first_slot, biases, scales};
  return ggml_custom_4d(context_, GGML_TYPE_F32, weights->ne[1], x->ne[1], 1, 1, args, 5, run, GGML_N_TASKS_MAX,
                        &compute_);
}

ggml_tensor* ExpertProducts::feed_forward(LayerOps& ops, const FeedForwardSpec& spec, const LayerWeights& weights,
                                          ggml_tensor* x) {
  const ProductScales& scales = weights.scales;
  ggml_tensor* gate = product(weights.gate_experts, weights.gate_experts_b, scales.gate_experts, x);
  ggml_tensor* up = product(weights.up_experts, weights.up_experts_b, scales.up_experts, x);
  return product(weights.down_experts, weights.down_experts_b, scales.down_experts,
                 ops.gated(context_, spec.activation, gate, up));
}

ggml_tensor* ExpertProducts::weighted_sum(ggml_tensor* y, ggml_tensor* routing_weights) {
  ggml_tensor* args[3] = {y, routing_weights, slot_of_};
  return ggml_custom_4d(context_, GGML_TYPE_F32, y->ne[0], routing_weights->ne[1], 1, 1, args, 3, run_weighted_sum,
                        GGML_N_TASKS_MAX, nullptr);
}

ggml_tensor* ExpertProducts::add_weighted(ggml_tensor* sums, ggml_tensor* y, ggml_tensor* routing_weights) {
  ggml_tensor* args[3] = {y, routing_weights, slots_.row_of};
  return ggml_custom_inplace(context_, sums, args, 3, run_add_weighted, GGML_N_TASKS_MAX, nullptr);
}

}  // namespace winnow
