// vatp: the snapkv score x the L1 norm of the token's value.
// Guo et al., "Attention Score is not All You Need for Token Importance Indicator in KV Cache Reduction", arXiv
// 2406.12335:
//   score_i = snapkv_i * || v_i ||_1
#include "eviction/evidence/window_scores.h"
#include "eviction/options/registry.h"

namespace winnow {
namespace {

class Vatp final : public Scorer {
 public:
  EvidenceNeeds needs(const EvictionOptions& options) const override { return window_score_needs(options); }
  std::vector<Option> options() const override { return window_score_options(); }
  bool is_non_negative() const override { return true; }

  LayerScores score(LayerEvidence& evidence, const EvictionOptions& options) const override {
    LayerScores scores = window_scores(evidence, options);
    const std::vector<std::vector<float>>& norms = evidence.value_l1_norms();
    for (int h = 0; h < evidence.n_kv_head(); ++h) {
      for (std::size_t i = 0; i < scores[h].size(); ++i) scores[h][i] *= norms[h][i];
    }
    return scores;
  }
};

}  // namespace

const Scorer& vatp_scorer() {
  static const Vatp instance;
  return instance;
}

}  // namespace winnow
