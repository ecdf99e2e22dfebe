#include "eviction/evidence/question_scores.h"

#include <cstddef>

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
  evidence.for_each_head([&](int h) {
    const auto head = static_cast<std::size_t>(h);
    const std::vector<float> pooled =
        pool_then_group(rms[head], evidence.n_group(), ScorePooling::kMax, kKernel, GroupReduction::kMean);
    for (std::size_t i = 0; i < pooled.size(); ++i) scores[head][i] += weight * pooled[i];
  });
}

}  // namespace winnow
