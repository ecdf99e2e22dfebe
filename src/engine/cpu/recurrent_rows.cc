#include "engine/cpu/recurrent_rows.h"

#include <ggml.h>

#include <algorithm>

#include "kernels/recurrences/delta_rule.h"
#include "kernels/recurrences/selective_scan.h"
#include "kernels/recurrences/short_convolution.h"

namespace winnow {
namespace {

constexpr std::int64_t kGrain = 16;  // the fewest channels that a thread takes

// Returns a tensor's floats, or null for no tensor.
const float* constants(const ggml_tensor* tensor) {
  return tensor != nullptr ? static_cast<const float*>(tensor->data) : nullptr;
}

template <auto convolve>
void run_convolution(ggml_tensor* dst, int ith, int nth, void* userdata) {
  const auto& rows = *static_cast<const RecurrentRows*>(userdata);
  rows.compute->guard([&] {
    const auto* x = static_cast<const float*>(dst->src[0]->data);
    auto* y = static_cast<float*>(dst->data);
    const std::int64_t n = dst->ne[0], n_in = dst->src[0]->ne[0], n_grains = (n + kGrain - 1) / kGrain;
    const std::int64_t first = std::min(n, n_grains * ith / nth * kGrain);
    const std::int64_t last = std::min(n, n_grains * (ith + 1) / nth * kGrain);
    const kernels::ShortConvolution convolution{.weights = constants(rows.weights->conv),
                                                .biases = constants(rows.weights->conv_b),
                                                .n_channels = n,
                                                .n_taps = rows.spec->recurrence.n_taps};
    for (const RecurrentRows::Sequence& s : rows.sequences) {
      convolve(convolution, x + s.first_row * n_in, s.n_rows, s.state.from, s.state.to, y + s.first_row * n, first,
               last);
    }
  });
}

// Calls body(sequence, its state before, its state after, head) for this thread's heads of all sequences; the states
// are those after the convolution's part.
void for_each_head(const RecurrentRows& rows, int ith, int nth, auto&& body) {
  const std::int64_t convolution = rows.weights->conv->ne[1] * (rows.spec->recurrence.n_taps - 1);
  const int n_heads = rows.spec->recurrence.n_value_heads, n_tasks = n_heads * static_cast<int>(rows.sequences.size());
  for (int task = n_tasks * ith / nth; task < n_tasks * (ith + 1) / nth; ++task) {
    const RecurrentRows::Sequence& s = rows.sequences[static_cast<std::size_t>(task / n_heads)];
    body(s, s.state.from + convolution, s.state.to + convolution, task % n_heads);
  }
}

// Return the rows of one sequence in a source or in dst.
const float* rows_of(const ggml_tensor* tensor, const RecurrentRows::Sequence& sequence) {
  return constants(tensor) + sequence.first_row * tensor->ne[0];
}
float* output_rows(ggml_tensor* dst, const RecurrentRows::Sequence& sequence) {
  return static_cast<float*>(dst->data) + sequence.first_row * dst->ne[0];
}

void run_delta_rule(ggml_tensor* dst, int ith, int nth, void* userdata) {
  const auto& rows = *static_cast<const RecurrentRows*>(userdata);
  rows.compute->guard([&] {
    const RecurrenceSpec& spec = rows.spec->recurrence;
    const kernels::DeltaRule rule{.head_dim = spec.key_dim,
                                  .n_key_heads = spec.n_key_heads,
                                  .n_value_heads = spec.n_value_heads,
                                  .eps = rows.spec->norm.eps,
                                  .decay = constants(rows.weights->state_decay),
                                  .decay_bias = constants(rows.weights->state_decay_bias)};
    for_each_head(rows, ith, nth, [&](const RecurrentRows::Sequence& s, const float* before, float* after, int head) {
      kernels::delta_rule(rule, rows_of(dst->src[0], s), rows_of(dst->src[1], s), rows_of(dst->src[2], s), s.n_rows,
                          before, after, output_rows(dst, s), head);
    });
  });
}

void run_selective_scan(ggml_tensor* dst, int ith, int nth, void* userdata) {
  const auto& rows = *static_cast<const RecurrentRows*>(userdata);
  rows.compute->guard([&] {
    const RecurrenceSpec& spec = rows.spec->recurrence;
    const kernels::SelectiveScan scan{.key_dim = spec.key_dim,
                                      .value_dim = spec.value_dim,
                                      .n_key_heads = spec.n_key_heads,
                                      .n_value_heads = spec.n_value_heads,
                                      .decay = constants(rows.weights->state_decay),
                                      .step_bias = constants(rows.weights->state_decay_bias),
                                      .skip = constants(rows.weights->state_skip)};
    for_each_head(rows, ith, nth, [&](const RecurrentRows::Sequence& s, const float* before, float* after, int head) {
      kernels::selective_scan(scan, rows_of(dst->src[0], s), rows_of(dst->src[1], s), s.n_rows, before, after,
                              output_rows(dst, s), head);
    });
  });
}

}  // namespace

ggml_tensor* recurrent_node(ggml_context* context, RecurrentRows& rows, RecurrentStep step,
                            std::span<ggml_tensor* const> inputs) {
  std::int64_t n = inputs[0]->ne[0];
  ggml_custom_op_t run = run_convolution<kernels::silu_convolution>;
  if (step == RecurrentStep::kGatedConvolution) n /= 3, run = run_convolution<kernels::short_convolution>;
  if (step == RecurrentStep::kDeltaRule) n = rows.spec->recurrence.n_values(), run = run_delta_rule;
  if (step == RecurrentStep::kSelectiveScan) n = rows.spec->recurrence.n_values(), run = run_selective_scan;
  std::vector<ggml_tensor*> args(inputs.begin(), inputs.end());
  return ggml_custom_4d(context, GGML_TYPE_F32, n, inputs[0]->ne[1], 1, 1, args.data(), static_cast<int>(args.size()),
                        run, GGML_N_TASKS_MAX, &rows);
}

}  // namespace winnow
