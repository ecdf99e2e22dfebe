// Logits as probabilities.
#pragma once

#include <cstdint>
#include <span>

#include "winnow/api.h"

namespace WINNOW_API winnow {

// The natural log of the softmax's denominator, summed in double precision: a token's log-probability is its logit
// minus this. `logits` is not empty. [n_vocab]
double log_sum_exp(std::span<const float> logits);

// logits[token] - log_sum_exp(logits)
double log_probability(std::span<const float> logits, std::int32_t token);

// log_probabilities[i] = logits[i] - log_sum_exp(logits). Both [n_vocab]; they may be the same span.
void log_softmax(std::span<const float> logits, std::span<float> log_probabilities);

// KL(p || q) in nats, at least 0 (rounding aside), of two rows of logits [n_vocab] whose log_sum_exp is given: 0 for
// rows that are log-probabilities.
double kl_divergence(std::span<const float> p, double log_sum_p, std::span<const float> q, double log_sum_q);

}  // namespace winnow
