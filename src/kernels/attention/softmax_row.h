// A row of scores becomes attention weights.
#pragma once

#include <limits>

namespace winnow::kernels {

// row [n] becomes exp(row - high) / (sum of these + exp(sink - high)), after a soft cap where it is not 0 (s becomes
// cap * tanh(s / cap)); sink: a logit that takes weight and has no entry. Returns the largest score, capped; NaN, and
// the row is undefined, where a score or the sink is not finite (a sink of -inf is none). Relative error below 1e-5
// plus 1e-7 times the score's distance from the largest.
float softmax_row(float* row, int n, float soft_cap, float sink = -std::numeric_limits<float>::infinity());

}  // namespace winnow::kernels
