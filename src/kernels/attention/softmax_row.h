// Turns a row of scores into attention weights.
#pragma once

#include <limits>

namespace winnow::kernels {

// Replaces row [n] by exp(row - high) / (sum of these + exp(sink - high)), after a soft cap (s becomes cap * tanh(s /
// cap)) unless it is 0; sink is a logit that takes weight and has no entry (-inf: none). Returns the largest score,
// capped, or NaN with an undefined row if a score or the sink is not finite. The relative error is below 1e-5 plus 1e-7
// times the score's distance from the largest.
float softmax_row(float* row, int n, float soft_cap, float sink = -std::numeric_limits<float>::infinity());

}  // namespace winnow::kernels
