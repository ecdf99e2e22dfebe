// The scores of one layer, for one cut or for several that differ in budget, allocators or selector.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "eviction/evidence/shared_costs.h"
#include "winnow/layer_evidence.h"
#include "winnow/scorer.h"

namespace winnow {

// A memo of a layer's evidence and scores: each statistic and each scorer's result is computed once. It must not
// outlive the view and the ParallelFor. Not thread-safe; it computes in parallel inside.
class LayerScoring {
 public:
  // Takes the WindowColumn bits that all parts of all cuts need (EvidenceNeeds::window_columns).
  LayerScoring(const LayerView& view, unsigned columns, const ParallelFor& parallel_for,
               SharedCosts costs = SharedCosts())
      : view_(view), columns_(columns), parallel_for_(parallel_for), costs_(std::move(costs)) {}
  LayerScoring(const LayerScoring&) = delete;  // the evidence points into it
  LayerScoring& operator=(const LayerScoring&) = delete;

  const LayerView& layer() const { return view_; }
  const ParallelFor& parallel_for() const { return parallel_for_; }
  // Return the evidence or scores for a method.
  LayerEvidence& evidence(const EvictionOptions& options);
  const LayerScores& scores(const EvictionOptions& options);
  // Returns the counter of the time that statistics and scores cost each cut that uses them.
  SharedCosts& costs() { return costs_; }

 private:
  const LayerView& view_;
  unsigned columns_;
  const ParallelFor& parallel_for_;
  std::map<std::pair<int, int>, LayerEvidence> evidence_;  // by window and sinks
  struct Scored {
    LayerScores scores;
    SharedCosts::Item cost;
  };
  std::map<std::string, Scored> scores_;  // by the scorer's text
  SharedCosts costs_;
};

}  // namespace winnow
