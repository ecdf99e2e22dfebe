// LAVa's statistic of a layer's scores (EMNLP 2025; formula in layers/lava.cc).
#pragma once

#include "winnow/scorer.h"

namespace winnow {

// Return the normalised entropy e_l of a layer's scores, between 0 and 1. Scores must not be negative. With
// parallel_for, its threads share the heads; the result is the same to the last bit.
double lava_entropy(const LayerScores& scores);
double lava_entropy(const LayerScores& scores, const ParallelFor& parallel_for);

}  // namespace winnow
