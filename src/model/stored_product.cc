#include "model/stored_product.h"

#include <ggml.h>

#include <algorithm>
#include <cassert>
#include <cstdint>

#include "kernels/products/quantised_product.h"
#include "model/compute.h"
#include "model/interleaved_weights.h"
#include "model/quantised_rows.h"
#include "model/thread_memory.h"

namespace winnow {
namespace {

using kernels::RowBlock;

// From so many rows on the threads share the quantising, as a node of its own. With fewer, every thread quantises all
// rows, which takes less time than waiting for the others.
constexpr std::int64_t kSharedRows = 4;

RowBlock* blocks_of(const ggml_tensor* quantised) { return reinterpret_cast<RowBlock*>(aligned_rows(quantised)); }

void multiply(ggml_tensor* dst, const RowBlock* rows, int ith, int nth) {
  const ggml_tensor* weight = dst->src[0];
  const std::int64_t n_out = weight->ne[1];
  const OutputPart part(n_out, ith, nth);
  kernels::quantised_product(*kernels::weight_blocks(ggml_type_name(weight->type)),
                             {.weights = static_cast<const std::byte*>(weight->data),
                              .next = nullptr,
                              .weight_stride = weight->nb[1],
                              .n_out = n_out,
                              .first = part.first,
                              .last = part.last,
                              .rows = {rows, dst->ne[1]},
                              .first_row = 0,
                              .n_rows = dst->ne[1],
                              .n_in = weight->ne[0],
                              .y = static_cast<float*>(dst->data),
                              .y_stride = n_out,
                              .layout = layout_of(weight)});
}

void run_quantising(ggml_tensor* dst, int ith, int nth, void* userdata) {
  static_cast<Compute*>(userdata)->guard([&] {
    const ggml_tensor* x = dst->src[0];
    const std::int64_t first = x->ne[1] * ith / nth, last = x->ne[1] * (ith + 1) / nth;
    kernels::quantise_rows(static_cast<const float*>(x->data) + first * x->ne[0], x->ne[0], first, last - first,
                           {blocks_of(dst), x->ne[1]});
  });
}

void run_stored_product(ggml_tensor* dst, int ith, int nth, void* userdata) {
  static_cast<Compute*>(userdata)->guard([&] { multiply(dst, blocks_of(dst->src[1]), ith, nth); });
}

void run_quantising_product(ggml_tensor* dst, int ith, int nth, void* userdata) {
  static_cast<Compute*>(userdata)->guard([&] {
    const ggml_tensor* x = dst->src[1];
    const auto n_blocks = static_cast<std::size_t>(x->ne[0] * x->ne[1] / kernels::kRowBlock);
    auto* rows = reinterpret_cast<RowBlock*>(thread_memory(n_blocks * sizeof(RowBlock)));
    kernels::quantise_rows(static_cast<const float*>(x->data), x->ne[0], 0, x->ne[1], {rows, x->ne[1]});
    multiply(dst, rows, ith, nth);
  });
}

}  // namespace

bool has_int8_product(const ggml_tensor* weight) {
  return kernels::has_quantised_products() && kernels::weight_blocks(ggml_type_name(weight->type)) &&
         ggml_n_dims(weight) <= 2;
}

ggml_tensor* stored_product(ggml_context* context, ggml_tensor* weight, ggml_tensor* x, Compute& compute,
                            QuantisedRows& rows) {
  const bool is_interleaved = layout_of(weight) == kernels::WeightLayout::kInterleaved;
  if (is_interleaved && !ggml_is_contiguous(x)) x = ggml_cont(context, x);
  const bool is_plain = x->type == GGML_TYPE_F32 && ggml_is_contiguous(x) && ggml_n_dims(x) <= 2;
  assert(!is_interleaved || is_plain);
  if (!is_plain || !has_int8_product(weight)) return ggml_mul_mat(context, weight, x);
  const std::int64_t n_rows = x->ne[1];
  ggml_tensor* args[2] = {weight, x};
  if (n_rows >= kSharedRows) {
    if (rows.x != x) {
      const std::int64_t n_blocks = n_rows * x->ne[0] / kernels::kRowBlock + 1;
      const auto n_bytes = n_blocks * static_cast<std::int64_t>(sizeof(RowBlock));
      rows = {x, ggml_custom_4d(context, GGML_TYPE_I8, n_bytes, 1, 1, 1, &x, 1, run_quantising, GGML_N_TASKS_MAX,
                                &compute)};
    }
    args[1] = rows.quantised;
  }
  return ggml_custom_4d(context, GGML_TYPE_F32, weight->ne[1], n_rows, 1, 1, args, 2,
                        n_rows >= kSharedRows ? run_stored_product : run_quantising_product, GGML_N_TASKS_MAX,
                        &compute);
}

}  // namespace winnow
