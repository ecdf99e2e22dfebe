#include "study/analysis/next_tokens.h"

#include <algorithm>
#include <cmath>

#include "winnow/log_softmax.h"

namespace winnow {
std::vector<std::vector<float>> predict(Session& session, std::span<const Token> tokens, int first) {
  std::vector<std::vector<float>> logits;
  if (first == 0) logits.emplace_back(session.logits().begin(), session.logits().end());
  const std::int32_t n_before = session.n_tokens();
  PrefillOptions options;
  options.on_logits = [&](std::int32_t position, std::span<const float> row) {
    if (position - n_before + 1 >= first) logits.emplace_back(row.begin(), row.end());
  };
  if (tokens.size() > 1) session.append(tokens.first(tokens.size() - 1), options);
  return logits;
}

NextTokens compare_predictions(std::span<const std::vector<float>> full, std::span<const std::vector<float>> cut,
                               std::span<const Token> tokens) {
  NextTokens result;
  result.n = static_cast<int>(tokens.size());
  double surprise = 0, surprise_full = 0;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const std::vector<float>&a = full[i], &b = cut[i];
    const double norm_a = log_sum_exp(a), norm_b = log_sum_exp(b);
    const double kl = kl_divergence(a, norm_a, b, norm_b);
    double l1 = 0;
    for (std::size_t j = 0; j < a.size(); ++j) l1 += std::fabs(static_cast<double>(a[j]) - static_cast<double>(b[j]));
    result.kl_mean += kl / result.n;
    result.kl_max = std::max(result.kl_max, kl);
    if (i == 0) result.first_logits_l1 = l1 / static_cast<double>(a.size());
    const auto token = static_cast<std::size_t>(tokens[i]);
    surprise_full += norm_a - static_cast<double>(a[token]);
    surprise += norm_b - static_cast<double>(b[token]);
    const bool agrees =
        std::max_element(a.begin(), a.end()) - a.begin() == std::max_element(b.begin(), b.end()) - b.begin();
    result.agreement += agrees ? 1.0 : 0.0;
  }
  result.agreement /= result.n;
  result.perplexity = std::exp(surprise / result.n);
  result.perplexity_full = std::exp(surprise_full / result.n);
  return result;
}

}  // namespace winnow
