#include "model/expert_products.h"

#include <ggml.h>

#include <cstdint>

namespace winnow {
namespace {

void run_weighted_sum(ggml_tensor* dst, int ith, int nth, void* /*userdata*/) {
  const ggml_tensor* outputs = dst->src[0];
  const ggml_tensor* shares = dst->src[1];
  const std::int64_t n = dst->ne[0], n_used = outputs->ne[1], n_rows = dst->ne[1];
  for (std::int64_t r = n_rows * ith / nth; r < n_rows * (ith + 1) / nth; ++r) {
    auto* sum = static_cast<float*>(dst->data) + r * n;
    for (std::int64_t e = 0; e < n_used; ++e) {
      const float share = static_cast<const float*>(shares->data)[r * n_used + e];
      const auto* output = static_cast<const float*>(outputs->data) + (r * n_used + e) * n;
      for (std::int64_t i = 0; i < n; ++i) sum[i] = (e == 0 ? 0.0F : sum[i]) + share * output[i];
    }
  }
}

}  // namespace

ggml_tensor* weighted_sum(ggml_context* context, ggml_tensor* outputs, ggml_tensor* shares) {
  ggml_tensor* args[2] = {outputs, shares};
  return ggml_custom_4d(context, GGML_TYPE_F32, outputs->ne[0], outputs->ne[2], 1, 1, args, 2, run_weighted_sum,
                        GGML_N_TASKS_MAX, nullptr);
}

}  // namespace winnow
