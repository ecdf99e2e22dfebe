#include "model/stored_product.h"

#include <ggml.h>
#include <hwy/aligned_allocator.h>

#include <exception>
#include <new>
#include <optional>

#include "kernels/quantised_product.h"
#include "model/compute.h"

namespace winnow {
namespace {

// Memory of one of ggml's threads for quantised rows; it grows to the largest product and lives as long as the thread.
std::byte* thread_memory(std::size_t bytes) {
  thread_local hwy::AlignedFreeUniquePtr<std::byte[]> memory;
  thread_local std::size_t size = 0;
  if (size < bytes) {
    memory = hwy::AllocateAligned<std::byte>(bytes);
    size = memory ? bytes : 0;
    if (!memory) throw std::bad_alloc();
  }
  return memory.get();
}

// Every thread quantises all rows: cheaper than waiting for the others.
void multiply(ggml_tensor* dst, int ith, int nth) {
  const ggml_tensor* weight = dst->src[0];
  const ggml_tensor* x = dst->src[1];
  const std::int64_t n_in = weight->ne[0];
  const std::int64_t n_out = weight->ne[1];
  const std::int64_t n_rows = x->ne[1];
  const std::int64_t first = n_out * ith / nth;
  const std::int64_t last = n_out * (ith + 1) / nth;
  if (first == last) return;
  std::byte* rows = thread_memory(kernels::quantised_rows_bytes(n_in, n_rows));
  kernels::quantise_rows(static_cast<const float*>(x->data), n_in, n_rows, rows);
  kernels::quantised_product(*kernels::weight_blocks(ggml_type_name(weight->type)),
                             static_cast<const std::byte*>(weight->data), weight->nb[1], first, last, rows, n_in,
                             n_rows, static_cast<float*>(dst->data), n_out);
}

void run_stored_product(ggml_tensor* dst, int ith, int nth, void* userdata) {
  try {
    multiply(dst, ith, nth);
  } catch (...) {
    static_cast<Compute*>(userdata)->fail(std::current_exception());
  }
}

}  // namespace

ggml_tensor* stored_product(ggml_context* context, ggml_tensor* weight, ggml_tensor* x, Compute& compute) {
  const std::optional<kernels::WeightBlocks> blocks = kernels::weight_blocks(ggml_type_name(weight->type));
  const bool is_plain =
      x->type == GGML_TYPE_F32 && ggml_is_contiguous(x) && ggml_n_dims(x) <= 2 && ggml_n_dims(weight) <= 2;
  if (!blocks || !is_plain || !kernels::has_quantised_product(*blocks)) return ggml_mul_mat(context, weight, x);
  ggml_tensor* args[2] = {weight, x};
  return ggml_custom_4d(context, GGML_TYPE_F32, weight->ne[1], x->ne[1], 1, 1, args, 2, run_stored_product,
                        GGML_N_TASKS_MAX, &compute);
}

}  // namespace winnow
