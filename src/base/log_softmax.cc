#include "winnow/log_softmax.h"

#include <algorithm>
#include <cmath>

namespace winnow {

double log_sum_exp(std::span<const float> logits) {
  const auto largest = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
  if (std::isinf(largest)) return largest;  // all are -inf, or one token is certain; inf - inf would be NaN
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
  return largest + std::log(sum);
}

double log_probability(std::span<const float> logits, std::int32_t token) {
  return static_cast<double>(logits[static_cast<std::size_t>(token)]) - log_sum_exp(logits);
}

void log_softmax(std::span<const float> logits, std::span<float> log_probabilities) {
  const double shift = log_sum_exp(logits);
  std::transform(logits.begin(), logits.end(), log_probabilities.begin(),
                 [shift](float logit) { return static_cast<float>(static_cast<double>(logit) - shift); });
}

double kl_divergence(std::span<const float> p, double log_sum_p, std::span<const float> q, double log_sum_q) {
  double sum = 0;
  for (std::size_t i = 0; i < p.size(); ++i) {
    const double log_p = static_cast<double>(p[i]) - log_sum_p;
    const double probability = std::exp(log_p);
    // A token of logit -inf in p adds 0, whatever its logit in q is; a NaN stays visible.
    if (probability != 0) sum += probability * (log_p - (static_cast<double>(q[i]) - log_sum_q));
  }
  return std::max(sum, 0.0);
}

}  // namespace winnow
