// Views of a sequence's layers for those who score its entries (eviction policies, analyses, calibration), and the
// execution of their cuts.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "engine/engine_impl.h"
#include "eviction/cut/cut.h"

namespace winnow {

// The entries of a layer as the processor reads them, copied from a device's memory.
class DownloadedHeads {
 public:
  bool is_empty() const { return heads_.empty(); }
  void copy(EntryMemory& memory, std::span<const kernels::HeadEntries> heads, const kernels::AttentionShape& shape);
  std::span<const kernels::HeadEntries> heads() const { return heads_; }

 private:
  std::vector<std::byte> rows_;
  std::vector<std::vector<kernels::EntryRun>> runs_;  // [n_kv_head]
  std::vector<kernels::HeadEntries> heads_;           // [n_kv_head]
};

// Makes views of one layer of a sequence for several readers in turn: each gets the same entries with its own queries,
// and what all need is computed once.
class LayerViews {
 public:
  // heads: [n_kv_head]; passes: KVzip's. What they point to must outlive this.
  LayerViews(Engine::Impl& engine, const CacheShape& shape, int layer, std::vector<kernels::HeadEntries> heads,
             std::int32_t n_tokens, std::vector<ReconstructionPass> passes = {});
  // Shows a layer as it is stored, with the scores of its earlier cuts.
  LayerViews(Engine::Impl& engine, const RaggedCache& cache, const EntryScores& scores, int layer,
             std::int32_t n_tokens);
  LayerViews(const LayerViews&) = delete;

  int layer() const { return layer_; }
  std::int32_t n_tokens() const { return n_tokens_; }
  std::span<const kernels::HeadEntries> heads() const { return heads_; }
  const CacheShape& shape() const { return shape_; }  // the shape that the entries are stored in

  // Returns a view with what `needs` asks for and at most max_window_rows of the last queries. The view is valid as
  // long as this is, and until the same evidence is asked again.
  LayerView of(QueryEvidence& evidence, const EvidenceNeeds& needs,
               int max_window_rows = std::numeric_limits<int>::max());

  // Returns the seconds that dequantising the output projection took; 0 if nobody asked for it.
  double output_projection_s() const { return w_o_s_; }

 private:
  Engine::Impl& engine_;
  const CacheShape& shape_;
  int layer_;
  std::vector<kernels::HeadEntries> heads_;
  std::vector<std::vector<kernels::EntryRun>> runs_;  // [n_kv_head] of heads stored out of the order of positions
  DownloadedHeads downloaded_;                        // what scorers read, where entries lie on a device
  std::int32_t n_tokens_;
  std::vector<std::vector<float>> earlier_scores_;  // [n_kv_head], or empty
  std::vector<ReconstructionPass> passes_;
  std::vector<float> w_o_;  // [n_head][value_dim][n_embd]
  double w_o_s_ = 0;
};

// Returns the views of a layer as it is stored in a session.
LayerViews stored_layer(Session::Impl& session, int layer);

// Drops the entries of stored layers that the cuts do not keep, and notes the scores of those that they keep; heads in
// parallel.
void keep_entries(Session::Impl& session, std::span<const LayerCut> cuts, const ParallelFor& parallel_for);

}  // namespace winnow
