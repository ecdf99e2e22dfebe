// Views of a sequence's layers for those who score its entries (eviction policies, analyses, calibration), and the
// execution of their cuts.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "cache/entry_sink.h"
#include "engine/engine_impl.h"
#include "eviction/cut/cut.h"
#include "eviction/evidence/entry_statistics.h"

namespace winnow {

// The passes that repeat the prompt, for methods that ask for the one or the other (EvidenceNeeds).
struct Reconstructions {
  std::vector<ReconstructionPass> whole = {};  // with a request to repeat, through all layers
  std::vector<ReconstructionPass> late = {};
};

// Makes views of one layer of a sequence for several readers in turn: each gets the same entries with its own queries,
// and what all need is computed once.
class LayerViews {
 public:
  // Shows the entries of the sink's present layer. rows: of the pass that computed the layer. The sink, the rows and
  // what the reconstructions point to must outlive this.
  LayerViews(Engine::Impl& engine, const EntrySink& sink, int layer, std::int32_t n_tokens,
             Reconstructions reconstructions, const PassRows* rows);
  // Shows a layer as it is stored, with the scores of its earlier cuts.
  LayerViews(Engine::Impl& engine, const RaggedCache& cache, const EntryScores& scores, int layer,
             std::int32_t n_tokens);
  LayerViews(const LayerViews&) = delete;

  int layer() const { return layer_; }
  std::int32_t n_tokens() const { return n_tokens_; }
  std::span<const kernels::HeadEntries> heads() const { return heads_; }
  const CacheShape& shape() const { return shape_; }  // the shape that the entries are stored in

  // Returns a view of the entries alone.
  LayerView entries() const;
  // Returns a view with what `needs` asks for and at most max_window_rows of the last queries. The view is valid as
  // long as this is, and until the same evidence is asked again. Its rows may lie on a device.
  LayerView of(QueryEvidence& evidence, const EvidenceNeeds& needs,
               int max_window_rows = std::numeric_limits<int>::max());
  // Returns the same with rows that the processor can read.
  LayerView with_rows(QueryEvidence& evidence, const EvidenceNeeds& needs);

  // Returns the seconds that dequantising the output projection took; 0 if nobody asked for it.
  double output_projection_s() const { return w_o_s_; }

 private:
  // Takes the entries' pages from `rows_of` if the processor cannot read them.
  void measure_on_device(const std::function<HeadRows(int head)>& rows_of, const PassRows* pass);

  Engine::Impl& engine_;
  const CacheShape& shape_;
  int layer_;
  std::vector<kernels::HeadEntries> heads_;
  std::vector<std::vector<kernels::EntryRun>> runs_;  // [n_kv_head] of heads stored out of the order of positions
  std::unique_ptr<EntryStatistics> statistics_;       // of entries on a device
  std::int32_t n_tokens_;
  std::vector<std::vector<float>> earlier_scores_;  // [n_kv_head], or empty
  Reconstructions reconstructions_;
  std::vector<float> w_o_;  // [n_head][value_dim][n_embd]
  double w_o_s_ = 0;
};

// Returns the views of a layer as it is stored in a session.
LayerViews stored_layer(Session::Impl& session, int layer);

// Drops the entries of stored layers that the cuts do not keep, and notes the scores of those that they keep; heads in
// parallel.
void keep_entries(Session::Impl& session, std::span<const LayerCut> cuts, const ParallelFor& parallel_for);

}  // namespace winnow
