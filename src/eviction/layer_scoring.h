// The scores of one layer, for one cut or for several that differ in budget, allocators or selector: each statistic and
// each scorer's result is computed once.
//
// Not thread-safe; parallel inside with the ParallelFor given. Lives as long as the view.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "eviction/layer_evidence.h"
#include "eviction/scorer.h"

namespace winnow {

class LayerScoring {
 public:
  // `columns`: WindowColumn bits that any part of any cut will ask for (EvidenceNeeds::window_columns).
  LayerScoring(const LayerView& view, unsigned columns, const ParallelFor& parallel_for)
      : view_(view), columns_(columns), parallel_for_(parallel_for) {}

  const LayerView& view() const { return view_; }
  const ParallelFor& parallel_for() const { return parallel_for_; }
  LayerEvidence& evidence(const EvictionOptions& options);
  const LayerScores& scores(const EvictionOptions& options);

 private:
  const LayerView& view_;
  unsigned columns_;
  const ParallelFor& parallel_for_;
  std::map<std::pair<int, int>, LayerEvidence> evidence_;  // by window and sinks
  std::map<std::string, LayerScores> scores_;              // by the scorer's text
};

}  // namespace winnow
