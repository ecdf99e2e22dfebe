#include "eviction/layer_scoring.h"

#include "eviction/registry.h"

namespace winnow {

LayerEvidence& LayerScoring::evidence(const EvictionOptions& options) {
  const auto [at, is_new] =
      evidence_.try_emplace({options.window, options.sinks}, view_, options, columns_, parallel_for_, &costs_);
  return at->second;
}

const LayerScores& LayerScoring::scores(const EvictionOptions& options) {
  Scored& scored = scores_[options.scorer_text()];
  costs_.use(scored.cost, [&] { scored.scores = find_scorer(options.scorer).score(evidence(options), options); });
  return scored.scores;
}

}  // namespace winnow
