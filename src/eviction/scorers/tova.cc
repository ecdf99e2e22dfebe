// tova: the attention weights of the last query row, mean over all query heads of the layer.
// Oren et al., "Transformers are Multi-State RNNs", arXiv 2401.06104:
//   score_i = 1/H sum_h A[h][N-1][i]
// All KV heads get the same score. In a later cut, a head that no longer holds a token counts as not attending to it.
#include <algorithm>

#include "eviction/options/registry.h"

namespace winnow {
namespace {

class Tova final : public Scorer {
 public:
  EvidenceNeeds needs(const EvictionOptions&) const override {
    return {.window_rows = 1, .window_columns = kWindowLast};
  }
  bool is_attention() const override { return true; }

  LayerScores score(LayerEvidence& evidence, const EvictionOptions&) const override {
    const WindowStatistics& window = evidence.window(1);
    std::vector<std::vector<std::int32_t>> positions;
    std::int32_t n_positions = 0;  // one past the last prefix position that any head holds
    for (int h = 0; h < evidence.n_kv_head(); ++h) {
      positions.push_back(evidence.positions(h));
      if (evidence.n_prefix(h) > 0) n_positions = std::max(n_positions, positions[h][evidence.n_prefix(h) - 1] + 1);
    }
    std::vector<double> sum(n_positions, 0.0);  // by position, over all query heads
    for (int h = 0; h < evidence.n_kv_head(); ++h) {
      const int n = evidence.n_prefix(h);
      for (int g = 0; g < evidence.n_group(); ++g) {
        for (int i = 0; i < n; ++i) sum[positions[h][i]] += static_cast<double>(window.last[h][std::size_t(g) * n + i]);
      }
    }
    LayerScores scores(evidence.n_kv_head());
    for (int h = 0; h < evidence.n_kv_head(); ++h) {
      for (int i = 0; i < evidence.n_prefix(h); ++i) {
        scores[h].push_back(static_cast<float>(sum[positions[h][i]] / evidence.layer().n_head));
      }
    }
    return scores;
  }
};

}  // namespace

const Scorer& tova_scorer() {
  static const Tova instance;
  return instance;
}

}  // namespace winnow
