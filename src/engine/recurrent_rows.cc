#include "engine/recurrent_rows.h"

#include <ggml.h>

#include <algorithm>
#include <exception>

#include "kernels/short_convolution.h"

namespace winnow {
namespace {

constexpr std::int64_t kGrain = 16;  // channels that a thread takes at least

void run(ggml_tensor* dst, int ith, int nth, void* userdata) {
  const auto& rows = *static_cast<const RecurrentRows*>(userdata);
  try {
    const auto* x = static_cast<const float*>(dst->src[0]->data);
    auto* y = static_cast<float*>(dst->data);
    const std::int64_t n = dst->ne[0], n_in = dst->src[0]->ne[0], n_grains = (n + kGrain - 1) / kGrain;
    const std::int64_t first = std::min(n, n_grains * ith / nth * kGrain);
    const std::int64_t last = std::min(n, n_grains * (ith + 1) / nth * kGrain);
    const kernels::ShortConvolution convolution{.weights = static_cast<const float*>(rows.weights->conv->data),
                                                .n_channels = n,
                                                .n_taps = rows.spec->recurrence.n_taps};
    for (const RecurrentRows::Sequence& s : rows.sequences) {
      kernels::short_convolution(convolution, x + s.first_row * n_in, s.n_rows, s.state.from, s.state.to,
                                 y + s.first_row * n, first, last);
    }
  } catch (...) {
    rows.compute->fail(std::current_exception());
  }
}

}  // namespace

ggml_tensor* recurrent_node(ggml_context* context, RecurrentRows& rows, ggml_tensor* x) {
  return ggml_custom_4d(context, GGML_TYPE_F32, x->ne[0] / 3, x->ne[1], 1, 1, &x, 1, run, GGML_N_TASKS_MAX, &rows);
}

}  // namespace winnow
