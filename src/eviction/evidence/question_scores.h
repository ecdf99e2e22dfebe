// The score of what a question at the prompt's end looks at, which the scorers rms and combined add to theirs:
//   question-weight * mean_h(max_{|i' - i| <= 3} sqrt(mean_j A[h][j][i']^2)), j over the prompt's last 32 rows, h over
//   the GQA group
// Pooling keeps the tokens around those that the question names, among them the answer (SnapKV, arXiv 2404.14469).
#pragma once

#include <vector>

#include "winnow/scorer.h"

namespace winnow {

// Returns the options question and question-weight.
std::vector<Option> question_options();
// Adds to each head's scores; nothing without question=last. The reference rows must have been saved.
void add_question_scores(LayerEvidence& evidence, const EvictionOptions& options, LayerScores& scores);

}  // namespace winnow
