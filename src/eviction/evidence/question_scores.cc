#include "eviction/evidence/question_scores.h"

#include <cstddef>
#include <span>

#include "eviction/evidence/pooling.h"

namespace winnow {
namespace {

constexpr int kQuestionRows = 32, kKernel = 7;  // as snapkv's

}  // namespace

std::vector<Option> question_options() {
  return {choice_option("question", {"none", "last"}, "none",
                        "where the prompt's question is: what the last rows look at then weighs more"),
          number_option("question-weight", 0, kMaxNumberOption, 4, "of what they look at")};
}

void add_question_scores(LayerEvidence& evidence, const EvictionOptions& options, LayerScores& scores) {
  const auto weight = static_cast<float>(options.number("question-weight"));
  if (options.text_of("question") == "none" || weight == 0) return;
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
}

}  // namespace winnow
