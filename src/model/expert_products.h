// Products of a mixture of experts: every row goes through the few experts that its router has chosen. The pairs of row
// and expert (slots) are put in order of the experts first, so that an expert's weights are read once for all of its
// rows, and not at all where it has none.
#pragma once

#include <cstdint>

struct ggml_context;
struct ggml_tensor;

namespace winnow {

class Compute;

// Slots in order of the experts, i32; an expert's rows keep their order.
struct ExpertSlots {
  ggml_tensor* first_slot = nullptr;  // [n_expert + 1], of each expert
  ggml_tensor* row_of = nullptr;      // [n_slots]
};

class ExpertProducts {
 public:
  // chosen [n_used, n_rows], i32: the experts of every row, each below n_expert. All must outlive the graph.
  ExpertProducts(ggml_context* context, ggml_tensor* chosen, std::int64_t n_expert, Compute& compute);
  // Of slots that stand in order already.
  ExpertProducts(ggml_context* context, const ExpertSlots& slots, Compute& compute);

  // x [n, n_rows] float32 -> [n, n_slots], in order of the experts.
  ggml_tensor* gather(ggml_tensor* x);
  // x [n_in, n_slots] in that order, weights [n_in, n_out, n_expert] of any type of ggml, biases [n_out, n_expert] or
  // null
  // -> [n_out, n_slots]. Beside quantised weights x is rounded to 8 bits by blocks, whatever a prompt's other weights
  // are converted to. A slot's result is the same bits alone and in any batch.
  ggml_tensor* product(ggml_tensor* weights, ggml_tensor* biases, ggml_tensor* x);
  // y [n, n_slots] in that order, shares [n_used, n_rows] -> [n, n_rows]: the sum over a row's experts, in the order in
  // which it has chosen them.
  ggml_tensor* weighted_sum(ggml_tensor* y, ggml_tensor* shares);
  // sums [n, ...] += shares [n_slots] times y [n, n_slots] at the slots' rows, in order of the slots.
  ggml_tensor* add_weighted(ggml_tensor* sums, ggml_tensor* y, ggml_tensor* shares);

 private:
  ggml_tensor* converted(ggml_tensor* x, ggml_tensor* weights, int format);

  ggml_context* context_;
  Compute& compute_;
  ExpertSlots slots_;
  ggml_tensor* slot_of_ = nullptr;  // [n_used, n_rows]; null where only the slots are known
  // The rows that were converted last: gate and up have the same.
  ggml_tensor* converted_of_ = nullptr;
  int converted_format_ = 0;
  ggml_tensor* converted_ = nullptr;
};

}  // namespace winnow
