// One cut of a sequence's cache: it scores layers as they arrive, shares the total among layers and heads, and returns
// the entries that stay. In layer-major prefill layers arrive one by one, and layers already cut may be cut again (the
// cascade of CAKE and LAVa); the final state equals that of the one-shot allocation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "eviction/cut/layer_scoring.h"
#include "winnow/cut_shape.h"
#include "winnow/eviction.h"
#include "winnow/layer_view.h"

namespace winnow {

// The entries of one layer that stay.
struct LayerCut {
  int layer;
  std::vector<std::vector<std::int32_t>> kept;  // [n_kv_head] ascending indices into the entries stored at present
  std::vector<std::vector<std::int32_t>> high;  // [n_kv_head] of `kept`, the entries to store in more bits
  // [n_kv_head] scores of the entries in `kept` before the window, 0 for sinks; empty unless the method needs them
  // (EvidenceNeeds::earlier_scores).
  std::vector<std::vector<float>> scores = {};
};

// The real-valued shares and integer budgets of a finished cut (for golden files, analyses, statistics).
struct CutReport {
  std::vector<double> layer_share;                // [n_layer], without protected entries; 0 for a layer never cut
  std::vector<std::vector<double>> head_share;    // [n_layer][n_kv_head], parts of the rounded layer budget, without
                                                  // protected entries
  std::vector<std::vector<std::int32_t>> budget;  // [n_layer][n_kv_head], entries kept, protected ones included
  std::vector<std::vector<std::int32_t>> high;    // [n_layer][n_kv_head], of `budget`, entries stored in more bits
  std::vector<std::int64_t> stage_stored;         // [layers that are cut] entries stored after each stage
};

// Sends a layer's summary to the other machines that make the same cut.
using SummarySink = std::function<void(std::span<const std::byte> summary)>;

// Throws Error(kUnsupported) for a budget of a loss with a method that may choose by what the loss is measured on.
void check_loss_is_measurable(const EvictionOptions& method, const Budget& budget);

// One cut. Not thread-safe. It is independent of pages and models.
//
// A model over several machines has a Cut on each. Each Cut adds the layers that its machine holds and sends the others
// a summary of each: numbers of entries, the weight of a measured layer, and, in a global ranking, the scores and
// positions of candidates that may stay. The others add the summary in the layer's turn. All thus go through the same
// stages, and each returns the cuts of its own layers.
class Cut {
 public:
  // Takes a method and the size of the cut. send_summary: null where one machine makes the cut. Throws
  // Error(kInvalidArgument), whose message gives the smallest budget that works, if T is less than the protected
  // entries (sinks and window in every head) while the prompt is longer than the budget.
  Cut(const EvictionOptions& options, const CutShape& shape, SummarySink send_summary = nullptr);
  ~Cut();
  Cut(Cut&&) noexcept;

  // Returns the evidence that the engine must save for add_layer under these options.
  static EvidenceNeeds needs(const EvictionOptions& options);

  // Returns true if all stored entries (N * heads in a prefill) fit in T: no layer has to be added then.
  bool keeps_everything() const;

  // Scores layer view.layer and returns the cuts that are due now, at most one per layer, in ascending order. Layers
  // that are cut must be added in order; after the last one the cuts are final. In prefill the layer just added is
  // always among them (also when it keeps everything), an earlier one only if it loses entries or more bits. Throws
  // Error(kInvalidArgument) for a score that is not a number, naming layer and head.
  std::vector<LayerCut> add_layer(const LayerView& view, const ParallelFor& parallel_for);
  // Adds a layer with scores that other cuts of the same layer share.
  std::vector<LayerCut> add_layer(LayerScoring& scoring);

  // Adds a layer of another machine and returns the cuts that are due, as add_layer. Throws Error(kInternal) for the
  // summary of another layer.
  std::vector<LayerCut> add_remote_layer(int layer, std::span<const std::byte> summary,
                                         const ParallelFor& parallel_for);

  // Keeps the rankings that narrowed() needs after the last layer. Must be called before the first one.
  void allow_narrowing();
  // Returns the cuts for a smaller total, which drop more of the entries that this cut keeps or store more of them in
  // fewer bits. May be called any number of times after the last layer, and changes no state. high_fraction replaces
  // that of CutShape::high.
  std::vector<LayerCut> narrowed(std::int64_t total, double high_fraction, const ParallelFor& parallel_for);
  // Returns the number of sinks and window entries of all heads, which every cut keeps.
  std::int64_t n_protected() const;

  // Returns the report of the layers that add_layer was given. Valid after the last layer, or from the start if
  // everything is kept.
  const CutReport& report() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace winnow
