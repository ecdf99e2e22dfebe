#include "eviction/window_scores.h"

#include "eviction/pooling.h"

namespace winnow {

EvidenceNeeds window_score_needs(const EvictionOptions& options) {
  return {.window_rows = options.window,
          .window_columns = options.rows == RowReduction::kMax ? kWindowMax : kWindowMean};
}

LayerScores window_scores(LayerEvidence& evidence, const EvictionOptions& options) {
  const WindowStatistics& window = evidence.window(options.window);
  LayerScores scores(evidence.n_kv_head());
  evidence.for_each_head([&](int h) {
    const std::vector<float>& columns = options.rows == RowReduction::kMax ? window.max[h] : window.mean[h];
    scores[h] = pool_and_group(columns, evidence.n_group(), options, options.group);
    if (options.rows != RowReduction::kSum) return;
    // Pooling and grouping commute with a positive factor.
    for (float& score : scores[h]) score *= static_cast<float>(window.n_rows);
  });
  return scores;
}

}  // namespace winnow
