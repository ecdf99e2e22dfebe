// LAVa's statistic of a layer's scores.
#pragma once

#include "winnow/scorer.h"

namespace winnow {

// Of non-negative scores; between 0 and 1.
double lava_entropy(const LayerScores& scores);

}  // namespace winnow
