// LAVa's statistic of a layer's scores (EMNLP 2025; formula in layers/lava.cc).
#pragma once

#include "winnow/scorer.h"

namespace winnow {

// Returns the normalised entropy e_l of a layer's scores, between 0 and 1. Scores must not be negative.
double lava_entropy(const LayerScores& scores);

}  // namespace winnow
