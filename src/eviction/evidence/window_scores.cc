#include "eviction/evidence/window_scores.h"

#include "eviction/evidence/pooling.h"

namespace winnow {

std::vector<Option> window_score_options() {
  std::vector<Option> options = {
      choice_option("rows", {"mean", "sum", "max"}, "mean", "reduction over the window's rows")};
  const std::vector<Option> pooling = pooling_options();
  options.insert(options.end(), pooling.begin(), pooling.end());
  return options;
}

EvidenceNeeds window_score_needs(const EvictionOptions& options) {
  return {.window_rows = options.window, .window_columns = options.text_of("rows") == "max" ? kWindowMax : kWindowMean};
}

LayerScores window_scores(LayerEvidence& evidence, const EvictionOptions& options) {
  const WindowStatistics& window = evidence.window(options.window);
  const std::string& rows = options.text_of("rows");
  LayerScores scores(evidence.n_kv_head());
  evidence.for_each_head([&](int h) {
    const std::vector<float>& columns = rows == "max" ? window.max[h] : window.mean[h];
    scores[h] = pool_and_group(columns, evidence.n_group(), options, group_reduction(options));
    if (rows != "sum") return;
    // Pooling and grouping commute with a positive factor.
    for (float& score : scores[h]) score *= static_cast<float>(window.n_rows);
  });
  return scores;
}

}  // namespace winnow
