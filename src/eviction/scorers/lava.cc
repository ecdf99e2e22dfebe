// lava: the snapkv score x the largest L1 norm of the head's values; group maximum.
// LAVa (EMNLP 2025), the layer-wise attention output loss bound, by which scores of different heads can be compared:
//   score_i = snapkv_i * max_k || v_k ||_1, k over all stored entries of the head, window included
#include <algorithm>

#include "eviction/evidence/window_scores.h"
#include "eviction/options/registry.h"

namespace winnow {
namespace {

class Lava final : public Scorer {
 public:
  EvidenceNeeds needs(const EvictionOptions& options) const override { return window_score_needs(options); }
  std::vector<Option> options() const override { return window_score_options(); }
  bool is_attention() const override { return true; }  // up to a factor per head

  LayerScores score(LayerEvidence& evidence, const EvictionOptions& options) const override {
    LayerScores scores = window_scores(evidence, options);
    const std::vector<std::vector<float>>& norms = evidence.value_l1_norms();
    for (int h = 0; h < evidence.n_kv_head(); ++h) {
      float max = 0;
      for (const float norm : norms[h]) {
        if (!(norm <= max)) max = norm;  // keeps a NaN for the check of the scores
        if (max != max) break;
      }
      for (float& score : scores[h]) score *= max;
    }
    return scores;
  }
};

}  // namespace

const Scorer& lava_scorer() {
  static const Lava instance;
  return instance;
}

}  // namespace winnow
