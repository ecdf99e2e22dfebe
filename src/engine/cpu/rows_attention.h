// Attention of many rows of one sequence: prefill and appended turns.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache/mapped_memory.h"
#include "engine/cpu/recurrent_rows.h"
#include "engine/executor.h"
#include "model/compute.h"
#include "model/graph_builder.h"
#include "model/model_impl.h"
#include "winnow/entries.h"

namespace winnow {

// Stores and attends to the rows of one batch in one layer at a time: call begin(), then build and run the graph, in
// which both are nodes of winnow's own.
class RowsAttention : public SequenceHook {
 public:
  // Keys and values go to the sink. The nodes are those of `graph`. All arguments and recorders must outlive the pass.
  RowsAttention(const Model::Impl& model, EntrySink& sink, Compute& compute, Graph& graph);

  // Sets the rows of a layer with attention; what the plan points to must outlive the graph.
  void begin(const LayerPlan& plan);
  // Sets the rows of a recurrent layer.
  void begin(int layer, std::int32_t n_rows, RecurrentState::Update state);

  ggml_tensor* attend(ggml_context* context, int layer, ggml_tensor* q_unrotated, ggml_tensor* q, ggml_tensor* k,
                      ggml_tensor* v) override;
  ggml_tensor* recur(ggml_context* context, int layer, RecurrentStep step,
                     std::span<ggml_tensor* const> inputs) override;

 private:
  void store(const float* k, const float* v, const float* q, const float* q_unrotated);
  void store_row(std::int32_t row, const float* k, const float* v, const float* q);
  void attend_rows(const float* q, float* out);
  void attend_block(int block, int kv_head, const float* q, float* out, MappedMemory& scratch);

  const Model::Impl& model_;
  EntrySink& sink_;
  EntryType key_type_;
  EntryType value_type_;
  Compute& compute_;
  Graph& graph_;
  const LayerSpec* spec_ = nullptr;  // of the present layer
  kernels::AttentionShape kernel_shape_{};

  LayerPlan batch_;
  std::vector<EntrySink::Head> heads_;  // [n_kv_head]
  RecurrentRows recurrent_;
  std::vector<MappedMemory> scratch_;  // [n_threads]
};

}  // namespace winnow
