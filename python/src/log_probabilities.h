// Log-probabilities of tokens by a model.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "winnow/log_softmax.h"
#include "winnow/model.h"

namespace winnow::python {

using Probability = std::pair<Token, double>;
using Probabilities = std::pair<double, std::vector<Probability>>;

// Returns natural logarithms of the model's own probabilities: the token's, and those of the n most likely ones,
// descending.
inline Probabilities log_probabilities(std::span<const float> logits, Token token, std::size_t n) {
  const double sum = log_sum_exp(logits);
  std::vector<Token> order(logits.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<Token>(i);
  const auto logit = [&](Token i) { return logits[static_cast<std::size_t>(i)]; };
  const auto end = order.begin() + static_cast<std::ptrdiff_t>(std::min(n, order.size()));
  std::partial_sort(order.begin(), end, order.end(), [&](Token a, Token b) { return logit(a) > logit(b); });
  std::vector<Probability> top;
  for (auto at = order.begin(); at != end; ++at) top.emplace_back(*at, logit(*at) - sum);
  return {logit(token) - sum, top};
}

}  // namespace winnow::python
