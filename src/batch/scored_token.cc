#include "batch/scored_token.h"

#include <algorithm>
#include <limits>

#include "winnow/log_softmax.h"

namespace winnow {
namespace {

std::vector<TokenProbability> likeliest(std::span<const float> logits, float normaliser, int n) {
  std::vector<TokenProbability> all(logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i) all[i] = {static_cast<Token>(i), logits[i] - normaliser};
  const auto middle = all.begin() + std::min<std::ptrdiff_t>(n, static_cast<std::ptrdiff_t>(all.size()));
  std::partial_sort(all.begin(), middle, all.end(),
                    [](const auto& a, const auto& b) { return a.log_probability > b.log_probability; });
  all.erase(middle, all.end());
  return all;
}

}  // namespace

BatchToken scored_token(int answer, Token token, std::span<const float> logits, int n) {
  BatchToken scored{.answer = answer, .token = token, .log_probability = std::numeric_limits<float>::quiet_NaN()};
  if (logits.empty()) return scored;
  const auto normaliser = static_cast<float>(log_sum_exp(logits));
  scored.log_probability = logits[static_cast<std::size_t>(token)] - normaliser;
  if (n > 0) scored.top = likeliest(logits, normaliser, n);
  return scored;
}

}  // namespace winnow
