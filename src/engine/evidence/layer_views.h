// Shows a sequence's layers to those who judge its entries (eviction policies, analyses, calibration), and does what
// they decide.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "engine/engine_impl.h"
#include "eviction/cut/cut.h"

namespace winnow {

// One layer of a sequence, for several who look at it one after the other: each gets the same entries with its own
// queries, and what all need is made once.
class LayerViews {
 public:
  // heads [n_kv_head]; passes: KVzip's. What they point to must outlive this.
  LayerViews(Engine::Impl& engine, const CacheShape& shape, int layer, std::vector<kernels::HeadEntries> heads,
             std::int32_t n_tokens, std::vector<ReconstructionPass> passes = {});
  // Of a layer as it is stored, with the scores of its earlier cuts.
  LayerViews(Engine::Impl& engine, const RaggedCache& cache, const EntryScores& scores, int layer,
             std::int32_t n_tokens);
  LayerViews(const LayerViews&) = delete;

  int layer() const { return layer_; }
  std::int32_t n_tokens() const { return n_tokens_; }
  std::span<const kernels::HeadEntries> heads() const { return heads_; }
  const CacheShape& shape() const { return shape_; }  // with the entries' types

  // With what `needs` asks for, and at most max_window_rows of the last queries. The view lives as long as this, and
  // until the same evidence is asked again.
  LayerView of(QueryEvidence& evidence, const EvidenceNeeds& needs,
               int max_window_rows = std::numeric_limits<int>::max());

  // What the output projection took to make; 0 if nobody asked for it.
  double output_projection_s() const { return w_o_s_; }

 private:
  Engine::Impl& engine_;
  const CacheShape& shape_;
  int layer_;
  std::vector<kernels::HeadEntries> heads_;
  std::vector<std::vector<kernels::EntryRun>> runs_;  // [n_kv_head] of heads that lie in another order than theirs
  std::int32_t n_tokens_;
  std::vector<std::vector<float>> earlier_scores_;  // [n_kv_head], or empty
  std::vector<ReconstructionPass> passes_;
  std::vector<float> w_o_;  // [n_head][value_dim][n_embd]
  double w_o_s_ = 0;
};

// A layer as it is stored in a session.
LayerViews stored_layer(Session::Impl& session, int layer);

// Drops from stored layers what a cut does not keep, and notes the scores of what it does; heads side by side.
void keep_entries(Session::Impl& session, std::span<const LayerCut> cuts, const ParallelFor& parallel_for);

}  // namespace winnow
