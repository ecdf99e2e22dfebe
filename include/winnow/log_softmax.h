// Functions from logits to probabilities.
#pragma once

#include <cstdint>
#include <span>

#include "winnow/api.h"

namespace WINNOW_API winnow {

// Returns the natural log of the softmax's denominator, log sum_i exp(logits[i]), summed in double precision. A token's
// log-probability is its logit minus this. `logits` [n_vocab] must not be empty.
double log_sum_exp(std::span<const float> logits);

// Returns the log-probability of a token: logits[token] - log_sum_exp(logits).
double log_probability(std::span<const float> logits, std::int32_t token);

// Writes log_probabilities[i] = logits[i] - log_sum_exp(logits). Both are [n_vocab] and may be the same span.
void log_softmax(std::span<const float> logits, std::span<float> log_probabilities);

// Returns KL(p || q) in nats, at least 0 but for rounding, of two rows of logits [n_vocab]. log_sum_p and log_sum_q are
// their log_sum_exp, which is 0 for rows of log-probabilities.
double kl_divergence(std::span<const float> p, double log_sum_p, std::span<const float> q, double log_sum_q);

}  // namespace winnow
