// The rows of a pass in this machine's memory, with a ggml graph for every batch and layer.
#pragma once

#include <optional>
#include <vector>

#include "cache/mapped_memory.h"
#include "engine/cpu/expert_pass.h"
#include "engine/cpu/rows_attention.h"
#include "engine/executor.h"

namespace winnow {

class CpuExecutor;

// Runs the rows of one pass on the processor.
class CpuPass final : public PassRows {
 public:
  // The executor must outlive it.
  CpuPass(CpuExecutor& executor, const PassPlan& plan);

  void embed(std::int32_t first_row, std::span<const Token> tokens) override;
  void run_layer(const LayerPlan& plan) override;
  bool splits_experts() const override { return true; }
  void run_attention_and_router(const LayerPlan& plan) override;
  void begin_experts(const ExpertPlan& plan) override;
  bool run_experts() override { return experts_->step(); }
  void combine_experts(const LayerPlan& plan) override;
  std::span<float> hidden() override { return {row(0), hidden_.bytes() / sizeof(float)}; }
  std::size_t bytes() const override { return hidden_.bytes() + (experts_ ? experts_->bytes() : 0); }

 private:
  // Sets up the attention or recurrence of the batch that goes through a layer next, and what is recorded of it.
  void begin_attention(const LayerPlan& plan);
  // Runs one graph of the plan's batch. build(graph, builder, the layer's spec, its weights, rows [n_embd, n_rows])
  // adds the nodes.
  template <class Build>
  void run(const LayerPlan& plan, const Build& build);
  float* row(std::int32_t r);

  CpuExecutor& executor_;
  const PassPlan plan_;
  MappedMemory hidden_;                  // [n_rows][n_embd]
  std::vector<std::int32_t> tokens_;     // [n_rows], where layers have per-layer embeddings
  std::vector<std::int32_t> positions_;  // of the present batch
  RowsAttention attention_;
  std::optional<ExpertPass> experts_;  // of the present layer, if any layer has experts
};

}  // namespace winnow
