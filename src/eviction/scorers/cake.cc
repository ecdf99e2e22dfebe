// cake: the mean of the observation window's attention weights + gamma x their variance, pooled and grouped.
// Qin et al., "CAKE: Cascading and Adaptive KV Cache Eviction with Layer Preferences" (ICLR 2025), the eviction
// indicator:
//   score_i = group(pool_i(mean_j A[h][j][i] + gamma * var_j A[h][j][i])), j over the last w rows, h over the GQA group
// The variance has w - 1 in the denominator, and is 0 with a single row.
#include "eviction/evidence/pooling.h"
#include "eviction/options/registry.h"

namespace winnow {
namespace {

class Cake final : public Scorer {
 public:
  EvidenceNeeds needs(const EvictionOptions& options) const override {
    return {.window_rows = options.window, .window_columns = kWindowMean | kWindowM2};
  }
  std::vector<Option> options() const override {
    std::vector<Option> options = pooling_options();
    options.push_back(number_option("gamma", 0, kMaxNumberOption, 200.0, "weight of the variance"));
    return options;
  }
  bool is_attention() const override { return true; }

  LayerScores score(LayerEvidence& evidence, const EvictionOptions& options) const override {
    const WindowStatistics& window = evidence.window(options.window);
    const double factor = window.n_rows > 1 ? options.number("gamma") / (window.n_rows - 1) : 0.0;
    LayerScores scores(evidence.n_kv_head());
    evidence.for_each_head([&](int h) {
      std::vector<float> columns(window.mean[h].size());
      for (std::size_t i = 0; i < columns.size(); ++i) {
        columns[i] = static_cast<float>(static_cast<double>(window.mean[h][i]) + factor * window.m2[h][i]);
      }
      scores[h] = pool_and_group(columns, evidence.n_group(), options, group_reduction(options));
    });
    return scores;
  }
};

}  // namespace

const Scorer& cake_scorer() {
  static const Cake instance;
  return instance;
}

}  // namespace winnow
