// snapkv: the attention weights of the observation window's rows on a prefix token, reduced, pooled and grouped.
// Li et al., "SnapKV: LLM Knows What You Are Looking for Before Generation", arXiv 2404.14469, section 4:
//   score_i = group(pool_i(rows_j A[h][j][i])), j over the last w rows, h over the GQA group
// The options rows, pool, kernel, order and group choose the reductions (evidence/window_scores.h).
#include "eviction/evidence/window_scores.h"
#include "eviction/options/registry.h"

namespace winnow {
namespace {

class SnapKv final : public Scorer {
 public:
  EvidenceNeeds needs(const EvictionOptions& options) const override { return window_score_needs(options); }
  std::vector<Option> options() const override { return window_score_options(); }
  bool is_attention() const override { return true; }

  LayerScores score(LayerEvidence& evidence, const EvictionOptions& options) const override {
    return window_scores(evidence, options);
  }
};

}  // namespace

const Scorer& snapkv_scorer() {
  static const SnapKv instance;
  return instance;
}

}  // namespace winnow
