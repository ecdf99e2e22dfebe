// The last step of a query row's online softmax with exponents of 2: sink logit, normalisation, log-sum-exp.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/simd/tiling.h"
#include "winnow/entries.h"

namespace winnow::kernels {

// The result for one row.
struct RowOutput {
  float factor;       // multiplies the row's unnormalised sums; 0 for a row that sees no entry
  float log_sum_exp;  // natural log of the denominator; -inf for a row that sees no entry
};

// Returns the output factor and log-sum-exp of one row. high: the largest of the row's scores times log2(e); weight:
// the sum of 2^(score - high), 0 for a row that sees no entry; query_head: index in the GQA group.
inline RowOutput finish_row(const AttentionSpec& spec, int query_head, float high, float weight) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  if (spec.sink_logits == nullptr) {
    if (weight == 0.0F) return {0.0F, -kInfinity};
    const double lse = static_cast<double>(high) * kLn2 + std::log(static_cast<double>(weight));
    return {1.0F / weight, static_cast<float>(lse)};
  }
  const float sink = spec.sink_logits[query_head] * kLog2E;
  if (weight == 0.0F) return {0.0F, spec.sink_logits[query_head]};
  const double top = static_cast<double>(std::max(high, sink));
  const double share = std::exp2(static_cast<double>(high) - top);
  const double total = static_cast<double>(weight) * share + std::exp2(static_cast<double>(sink) - top);
  return {static_cast<float>(share / total), static_cast<float>(top * kLn2 + std::log(total))};
}

}  // namespace winnow::kernels
