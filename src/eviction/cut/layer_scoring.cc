#include "eviction/cut/layer_scoring.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "eviction/cut/part_answers.h"
#include "eviction/options/registry.h"

namespace winnow {
namespace {

// Replaces scores by larger earlier ones. A NaN stays.
void take_larger(LayerScores& scores, std::span<const std::vector<float>> earlier) {
  for (std::size_t h = 0; h < earlier.size(); ++h) {
    const std::size_t n = std::min(scores[h].size(), earlier[h].size());
    for (std::size_t i = 0; i < n; ++i) {
      if (scores[h][i] < earlier[h][i]) scores[h][i] = earlier[h][i];
    }
  }
}

}  // namespace

LayerEvidence& LayerScoring::evidence(const EvictionOptions& options) {
  const auto [at, is_new] =
      evidence_.try_emplace({options.window, options.sinks}, view_, options, columns_, parallel_for_, &costs_);
  return at->second;
}

const LayerScores& LayerScoring::scores(const EvictionOptions& options) {
  Scored& scored = scores_[options.scorer_text()];  // the view has one way of repeating the prompt, if any
  costs_.use(scored.cost, [&] {
    const Scorer& scorer = find_scorer(options.scorer);
    scored.scores = scorer.score(evidence(options), options);
    check_scores(options.scorer, evidence(options), scored.scores);
    if (scorer.needs(options).earlier_scores) take_larger(scored.scores, view_.earlier_scores);
  });
  return scored.scores;
}

}  // namespace winnow
