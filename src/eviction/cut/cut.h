// Carries out one cut of a sequence's cache: scores layers as they come, shares the total among layers and heads, and
// says which entries stay. In layer-major prefill layers come one by one and layers already cut may be cut again (the
// cascade of CAKE and LAVa); the final state equals the one-shot allocation.
//
// Not thread-safe. Knows nothing of pages or models.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "eviction/cut/layer_scoring.h"
#include "winnow/cut_shape.h"
#include "winnow/eviction.h"
#include "winnow/layer_view.h"

namespace winnow {

// One layer's survivors.
struct LayerCut {
  int layer;
  std::vector<std::vector<std::int32_t>> kept;  // [n_kv_head] ascending indices into the entries stored at present
  std::vector<std::vector<std::int32_t>> fine;  // [n_kv_head] of these, what is stored in more bits
  // [n_kv_head] where the method needs earlier scores: of the entries in `kept`, 0 for sinks, up to the window.
  std::vector<std::vector<float>> scores = {};
};

// Real-valued shares and integer budgets of a finished cut (golden files, analyses, statistics).
struct CutReport {
  std::vector<double> layer_share;                // [n_layer], protected entries not counted; 0 for one left alone
  std::vector<std::vector<double>> head_share;    // [n_layer][n_kv_head], of the rounded layer budget, likewise
  std::vector<std::vector<std::int32_t>> budget;  // [n_layer][n_kv_head], entries kept, protected ones included
  std::vector<std::vector<std::int32_t>> fine;    // [n_layer][n_kv_head], of them stored in more bits
  std::vector<std::int64_t> stage_stored;         // [layers that are cut] entries stored after each stage
};

class Cut {
 public:
  // Throws Error(kInvalidArgument) if T is less than the protected entries (sinks + window in every head) while the
  // prompt is longer than the budget, with the smallest budget that works.
  // is_one_of_several: see newest_layer.
  Cut(const EvictionOptions& options, const CutShape& shape, bool is_one_of_several = false);
  ~Cut();
  Cut(Cut&&) noexcept;

  // What the engine must save for add_layer under these options.
  static EvidenceNeeds needs(const EvictionOptions& options);

  // Whether all that is stored (N * heads in a prefill) fits in T: no layer need be added then.
  bool keeps_everything() const;

  // Scores layer view.layer (layers that are cut come in order), and returns the cuts that are due now, at most one per
  // layer, in ascending order; after the last layer they are final. In prefill the layer just added is always among
  // them (also when it keeps everything), an earlier one only if it loses entries or more bits. Throws
  // Error(kInvalidArgument) for a score that is not a number, naming layer and head.
  std::vector<LayerCut> add_layer(const LayerView& view, const ParallelFor& parallel_for);
  // The same with scores that other cuts of the same layer share.
  std::vector<LayerCut> add_layer(LayerScoring& scoring);

  // A cut of a model over several machines: each has one, adds the layers that it holds, and tells the others of each
  // what they have to know of it: numbers of entries, the weight of a measured layer, and, where all layers are ranked
  // together, the scores and positions of what may stay. They add that in the layer's turn, and so all of them go
  // through the same stages; what they return is of their own layers.
  //
  // Of the layer added last, after add_layer, in a cut that is one of several.
  std::span<const std::byte> newest_layer() const;
  // Throws Error(kInternal) for what newest_layer() of another layer has given.
  std::vector<LayerCut> add_remote_layer(int layer, std::span<const std::byte> summary,
                                         const ParallelFor& parallel_for);

  // Before the first layer: what narrowed() needs is kept beyond the last one.
  void allow_narrowing();
  // After the last layer, any number of times: what a cut to fewer entries would still drop of the entries that this
  // one keeps, or store in fewer bits. Nothing changes here. fine_part: as in CutShape::fine.
  std::vector<LayerCut> narrowed(std::int64_t total, double fine_part, const ParallelFor& parallel_for);
  // Sinks and windows of all heads: no cut keeps less.
  std::int64_t n_protected() const;

  // Of layers of its own. After the last layer; where everything is kept, from the start.
  const CutReport& report() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace winnow
