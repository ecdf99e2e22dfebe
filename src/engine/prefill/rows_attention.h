// Attention of many rows of one sequence: prefill and appended turns.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "cache/mapped_memory.h"
#include "cache/ragged_cache.h"
#include "cache/staging_buffer.h"
#include "engine/attention_shape.h"
#include "engine/evidence/query_evidence.h"
#include "kernels/entries.h"
#include "model/compute.h"
#include "model/graph_builder.h"
#include "model/model_impl.h"

namespace winnow {

// Where a batch's queries and keys are copied to besides, from row 0 on; null: nowhere.
struct RowCopies {
  float* q = nullptr;  // [n_rows][n_head][key_dim], rotated
  float* k = nullptr;  // [n_rows][n_kv_head][key_dim], rotated
};

// Used for one pass of rows through one layer at a time: set up with begin(), then build and run the graph.
class RowsAttention : public AttentionHook {
 public:
  RowsAttention(const Model::Impl& model, const CacheShape& shape, Compute& compute);

  // The rows' keys and values go to the staging buffer, whose tokens before them are what they attend to. The recorders
  // receive their queries and must outlive the run of the graph.
  void begin_staged(StagingBuffer& staging, std::span<QueryEvidence* const> recorders, const RowCopies& copies,
                    int layer, std::int32_t first_token, std::int32_t n_rows, std::int32_t first_position);
  // The rows' entries are in the cache already (extended, not yet written): the last ones up to and with
  // first_position + n_rows - 1; `n_later` entries behind them belong to later rows of the same append.
  void begin_cached(RaggedCache& cache, std::span<QueryEvidence* const> recorders, int layer, std::int32_t n_rows,
                    std::int32_t n_later, std::int32_t first_position);

  ggml_tensor* attend(ggml_context* context, int layer, ggml_tensor* q_unrotated, ggml_tensor* q, ggml_tensor* k,
                      ggml_tensor* v) override;

 private:
  static void store(ggml_tensor* dst, int ith, int nth, void* userdata);
  static void run(ggml_tensor* dst, int ith, int nth, void* userdata);
  void begin_layer(int layer);
  void store_rows(const ggml_tensor* dst, int ith, int nth);
  void attend_rows(const ggml_tensor* dst, int ith);

  const Model::Impl& model_;
  EntryType key_type_;
  EntryType value_type_;
  Compute& compute_;
  const LayerSpec* spec_ = nullptr;  // of the present layer
  kernels::AttentionShape kernel_shape_{};

  StagingBuffer* staging_ = nullptr;  // exactly one of the two
  RaggedCache* cache_ = nullptr;
  std::span<QueryEvidence* const> recorders_;
  RowCopies copies_;
  int layer_ = 0;
  std::int32_t n_rows_ = 0;
  std::int32_t first_position_ = 0;
  std::int32_t first_token_ = 0;                // staged: index of row 0 in the buffer
  std::vector<std::int32_t> n_before_;          // [n_kv_head] entries before row 0
  std::vector<kernels::EntryRun> staged_runs_;  // [n_kv_head]
  std::vector<kernels::HeadEntries> heads_;     // [n_kv_head] with all rows of this pass
  std::atomic<int> next_task_{0};
  std::vector<MappedMemory> scratch_;  // [n_threads]
};

}  // namespace winnow
