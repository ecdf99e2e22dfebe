// The experts of a layer over all rows of a pass. While rows go through attention batch by batch, the graph notes here
// which experts every row takes; then the rows of one expert after the other go through it together, so that its
// weights are read once for a whole prompt instead of once for every batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cache/mapped_memory.h"
#include "model/compute.h"
#include "model/graph_builder.h"

namespace winnow {

class CpuExecutor;

// Groups rows by expert and runs the experts. Not thread-safe.
class ExpertPass {
 public:
  // hidden: [n_rows][n_embd], the rows that experts read; must outlive the pass.
  ExpertPass(CpuExecutor& executor, float* hidden, std::int32_t n_rows);

  // Returns whether a layer of the model has experts.
  static bool is_needed(const ModelSpec& spec);
  std::size_t bytes() const { return memory_.bytes(); }

  // Adds nodes to the graph that store the routing of the rows from first_row on here.
  void note(Graph& graph, const RoutedRows& routed, std::int32_t first_row);
  // Begins the experts of a layer for these rows, which must all have been noted.
  void begin(int layer, std::int32_t first_row, std::int32_t n_rows);
  // Runs some experts; returns whether there are more. An expert with more rows than a batch sends to all experts
  // together is run in several steps.
  bool step();
  // Returns the sums [.][n_embd] of what a row's experts gave, times their routing weights, from this row on. Valid
  // after the last step.
  float* sums(std::int32_t row) { return sums_ + std::int64_t{row} * n_embd_; }

 private:
  CpuExecutor& executor_;
  float* hidden_;
  std::int64_t n_embd_, n_rows_, n_used_;
  MappedMemory memory_;
  float* sums_;             // [n_rows][n_embd]
  float* routing_weights_;  // [n_rows][n_used]
  std::int32_t* chosen_;    // [n_rows][n_used]
  // The next three are ordered by expert.
  float* slot_weights_;              // [n_rows * n_used]
  std::int32_t* row_of_;             // [n_rows * n_used]
  std::vector<std::int32_t> first_;  // [n_expert + 1], of each expert
  int layer_ = 0;
  std::int32_t done_ = 0;  // slots run so far
};

}  // namespace winnow
