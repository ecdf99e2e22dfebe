// rms: the root mean square of the attention weights that a token gets from reference rows. It is winnow's own scorer.
//   score_i = sqrt(mean_{h, j} A[h][j][i]^2), j over the reference rows, h over the GQA group
// Reference rows are queries of the prompt itself, spread over it and rotated to positions after it. The mean of
// squares is proportional to the part of attention's output that comes from a token's value, if values are independent
// and of equal size.
//
// With question=last, what the question looks at counts as well (evidence/question_scores.h).
#include "eviction/evidence/question_scores.h"
#include "eviction/options/registry.h"

namespace winnow {
namespace {

class Rms final : public Scorer {
 public:
  EvidenceNeeds needs(const EvictionOptions&) const override {
    return {.reference_rows = true, .earlier_scores = true};
  }
  std::vector<Option> options() const override { return question_options(); }
  bool is_attention() const override { return true; }

  LayerScores score(LayerEvidence& evidence, const EvictionOptions& options) const override {
    LayerScores scores = evidence.reference_rms();
    add_question_scores(evidence, options, scores);
    return scores;
  }
};

}  // namespace

const Scorer& rms_scorer() {
  static const Rms instance;
  return instance;
}

}  // namespace winnow
