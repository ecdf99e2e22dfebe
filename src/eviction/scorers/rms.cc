// rms: the root mean square of the attention weights that a token gets from reference rows. It is winnow's own scorer.
//   score_i = sqrt(mean_{h, j} A[h][j][i]^2), j over the reference rows, h over the GQA group
// Reference rows are queries of the prompt itself, spread over it and rotated to positions after it. The mean of
// squares is proportional to the part of attention's output that comes from a token's value, if values are independent
// and of equal size.
//
// With question=last, what the rows of a question at the prompt's end look at counts as well:
//   score_i += question-weight * mean_h(max_{|i' - i| <= 3} sqrt(mean_j A[h][j][i']^2)), j over the prompt's last 32
//   rows
// Pooling keeps the tokens around those that the question names, among them the answer (SnapKV, arXiv 2404.14469).
#include <cstddef>
#include <span>
#include <vector>

#include "eviction/evidence/pooling.h"
#include "eviction/options/registry.h"

namespace winnow {
namespace {

constexpr int kQuestionRows = 32, kKernel = 7;  // as snapkv's

class Rms final : public Scorer {
 public:
  EvidenceNeeds needs(const EvictionOptions&) const override {
    return {.reference_rows = true, .earlier_scores = true};
  }
  std::vector<Option> options() const override {
    return {
        choice_option("question", {"none", "last"}, "none",
                      "the question that the prompt ends with, whose rows weigh more; last where winnow knows of one"),
        number_option("question-weight", 0, kMaxNumberOption, 2, "of what the question's rows look at")};
  }
  bool is_attention() const override { return true; }

  LayerScores score(LayerEvidence& evidence, const EvictionOptions& options) const override {
    LayerScores scores = evidence.reference_rms();
    const auto weight = static_cast<float>(options.number("question-weight"));
    if (options.text_of("question") == "none" || weight == 0) return scores;
    const std::vector<std::vector<float>> rms = evidence.last_rows_rms(kQuestionRows);
    const auto n_group = static_cast<std::size_t>(evidence.n_group());
    evidence.for_each_head([&](int h) {
      const std::vector<float>& columns = rms[static_cast<std::size_t>(h)];
      const std::size_t n = columns.size() / n_group;
      std::vector<float> pooled(columns.size());
      for (std::size_t g = 0; g < n_group; ++g) {
        pool_row(std::span(columns).subspan(g * n, n), Pooling::kMax, kKernel, std::span(pooled).subspan(g * n, n));
      }
      const std::vector<float> mean = group_only(pooled, evidence.n_group(), GroupReduction::kMean);
      for (std::size_t i = 0; i < n; ++i) scores[static_cast<std::size_t>(h)][i] += weight * mean[i];
    });
    return scores;
  }
};

}  // namespace

const Scorer& rms_scorer() {
  static const Rms instance;
  return instance;
}

}  // namespace winnow
