// Products of a mixture of experts: every row goes through the few experts to which it is routed. The pairs of row and
// expert (slots) are sorted by expert first, so that an expert's weights are read once for all of its rows, and not at
// all if it has none.
#pragma once

#include <cstdint>

struct ggml_context;
struct ggml_tensor;

namespace winnow {

class Compute;
class LayerOps;
struct FeedForwardSpec;
struct LayerWeights;

// The slots in order of the experts, i32. An expert's rows keep their order.
struct ExpertSlots {
  ggml_tensor* first_slot = nullptr;  // [n_expert + 1] first slot of each expert
  ggml_tensor* row_of = nullptr;      // [n_slots] row of each slot
};

// The products of some rows with their experts, as nodes of a graph. Tensors that it is given must outlive the graph.
class ExpertProducts {
 public:
  // Takes the experts of every row, chosen [n_used, n_rows], i32, each below n_expert.
  ExpertProducts(ggml_context* context, ggml_tensor* chosen, std::int64_t n_expert, Compute& compute);
  // Takes slots that are sorted already.
  ExpertProducts(ggml_context* context, const ExpertSlots& slots, Compute& compute);

  // Returns the slots' rows [n, n_slots] of x [n, n_rows], float32, in order of the experts.
  ggml_tensor* gather(ggml_tensor* x);
  // Returns the products [n_out, n_slots] of x [n_in, n_slots], in order of the experts, with weights
  // [n_in, n_out, n_expert] of any type of ggml, times scales [n_expert] and plus biases [n_out, n_expert] unless null.
  // With quantised weights x is rounded to 8 bits by blocks, whatever a prompt's other weights are converted to. A
  // slot's result has the same bits alone and in any batch.
  ggml_tensor* product(ggml_tensor* weights, ggml_tensor* biases, ggml_tensor* scales, ggml_tensor* x);
  // Returns what the experts of a layer give, [n_embd, n_slots], for x [n_embd, n_slots] in order of the experts.
  ggml_tensor* feed_forward(LayerOps& ops, const FeedForwardSpec& spec, const LayerWeights& weights, ggml_tensor* x);
  // Returns [n, n_rows]: for every row the sum of y [n, n_slots] over its experts, times `routing_weights`
  // [n_used, n_rows], in the order in which the experts were chosen.
  ggml_tensor* weighted_sum(ggml_tensor* y, ggml_tensor* routing_weights);
  // Adds y [n, n_slots] times `routing_weights` [n_slots] to sums [n, ...] at the slots' rows, in order of
  // the slots, and returns the sums.
  ggml_tensor* add_weighted(ggml_tensor* sums, ggml_tensor* y, ggml_tensor* routing_weights);

 private:
  ggml_tensor* converted(ggml_tensor* x, ggml_tensor* weights, int format);

  ggml_context* context_;
  Compute& compute_;
  ExpertSlots slots_;
  ggml_tensor* slot_of_ = nullptr;  // [n_used, n_rows]; null where only the slots are known
  // The rows that were converted last, which the next product may read, too: gate and up have the same.
  ggml_tensor* converted_of_ = nullptr;
  int converted_format_ = 0;
  ggml_tensor* converted_ = nullptr;
};

}  // namespace winnow
