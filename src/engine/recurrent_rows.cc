#include "engine/recurrent_rows.h"

#include <ggml.h>

#include <algorithm>

#include "kernels/delta_rule.h"
#include "kernels/short_convolution.h"

namespace winnow {
namespace {

constexpr std::int64_t kGrain = 16;  // channels that a thread takes at least

template <auto convolve>
void run_convolution(ggml_tensor* dst, int ith, int nth, void* userdata) {
  const auto& rows = *static_cast<const RecurrentRows*>(userdata);
  rows.compute->guard([&] {
    const auto* x = static_cast<const float*>(dst->src[0]->data);
    auto* y = static_cast<float*>(dst->data);
    const std::int64_t n = dst->ne[0], n_in = dst->src[0]->ne[0], n_grains = (n + kGrain - 1) / kGrain;
    const std::int64_t first = std::min(n, n_grains * ith / nth * kGrain);
    const std::int64_t last = std::min(n, n_grains * (ith + 1) / nth * kGrain);
    const kernels::ShortConvolution convolution{.weights = static_cast<const float*>(rows.weights->conv->data),
                                                .n_channels = n,
                                                .n_taps = rows.spec->recurrence.n_taps};
    for (const RecurrentRows::Sequence& s : rows.sequences) {
      convolve(convolution, x + s.first_row * n_in, s.n_rows, s.state.from, s.state.to, y + s.first_row * n, first,
               last);
    }
  });
}

void run_delta_rule(ggml_tensor* dst, int ith, int nth, void* userdata) {
  const auto& rows = *static_cast<const RecurrentRows*>(userdata);
  rows.compute->guard([&] {
    const RecurrenceSpec& spec = rows.spec->recurrence;
    const auto constants = [](const ggml_tensor* tensor) { return static_cast<const float*>(tensor->data); };
    const kernels::DeltaRule rule{.head_dim = spec.head_dim,
                                  .n_key_heads = spec.n_key_heads,
                                  .n_value_heads = spec.n_value_heads,
                                  .eps = rows.spec->norm_eps,
                                  .decay = constants(rows.weights->delta_decay),
                                  .decay_bias = constants(rows.weights->delta_decay_bias)};
    // The convolution's part of the state stands before.
    const std::int64_t before = rows.weights->conv->ne[1] * (spec.n_taps - 1), n_in = dst->src[0]->ne[0];
    const int n_heads = spec.n_value_heads, n_tasks = n_heads * static_cast<int>(rows.sequences.size());
    for (int task = n_tasks * ith / nth; task < n_tasks * (ith + 1) / nth; ++task) {
      const RecurrentRows::Sequence& s = rows.sequences[static_cast<std::size_t>(task / n_heads)];
      kernels::delta_rule(
          rule, constants(dst->src[0]) + s.first_row * n_in, constants(dst->src[1]) + s.first_row * n_heads,
          constants(dst->src[2]) + s.first_row * n_heads, s.n_rows, s.state.from + before, s.state.to + before,
          static_cast<float*>(dst->data) + s.first_row * dst->ne[0], task % n_heads);
    }
  });
}

}  // namespace

ggml_tensor* recurrent_node(ggml_context* context, RecurrentRows& rows, RecurrentStep step,
                            std::span<ggml_tensor* const> inputs) {
  std::int64_t n = inputs[0]->ne[0];
  ggml_custom_op_t run = run_convolution<kernels::silu_convolution>;
  if (step == RecurrentStep::kGatedConvolution) n /= 3, run = run_convolution<kernels::short_convolution>;
  if (step == RecurrentStep::kDeltaRule) n = rows.spec->recurrence.n_values(), run = run_delta_rule;
  std::vector<ggml_tensor*> args(inputs.begin(), inputs.end());
  return ggml_custom_4d(context, GGML_TYPE_F32, n, inputs[0]->ne[1], 1, 1, args.data(), static_cast<int>(args.size()),
                        run, GGML_N_TASKS_MAX, &rows);
}

}  // namespace winnow
