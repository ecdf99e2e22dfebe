#include "eviction/layer_scoring.h"

#include "eviction/registry.h"

namespace winnow {

LayerEvidence& LayerScoring::evidence(const EvictionOptions& options) {
  const auto [at, is_new] =
      evidence_.try_emplace({options.window, options.sinks}, view_, options, columns_, parallel_for_);
  return at->second;
}

const LayerScores& LayerScoring::scores(const EvictionOptions& options) {
  const auto [at, is_new] = scores_.try_emplace(options.scorer_text());
  if (is_new) at->second = find_scorer(options.scorer).score(evidence(options), options);
  return at->second;
}

}  // namespace winnow
