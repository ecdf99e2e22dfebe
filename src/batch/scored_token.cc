#include "batch/scored_token.h"

#include <algorithm>
#include <limits>

#include "model/model_impl.h"
#include "winnow/log_softmax.h"

namespace winnow {
namespace {

// Returns the logits of tokens: some files pad the output matrix beyond the vocabulary.
std::span<const float> logits_of_tokens(const Model& model, std::span<const float> logits) {
  const Tokenizer& tokenizer = model.impl().tokenizer;
  if (!tokenizer.has_tokens()) return logits;
  return logits.first(std::min(logits.size(), static_cast<std::size_t>(tokenizer.n_vocab())));
}

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

BatchToken scored_token(const Model& model, int answer, Token token, std::span<const float> logits, int n) {
  BatchToken scored{.answer = answer, .token = token, .log_probability = std::numeric_limits<float>::quiet_NaN()};
  if (logits.empty()) return scored;
  const auto normaliser = static_cast<float>(log_sum_exp(logits));
  scored.log_probability = logits[static_cast<std::size_t>(token)] - normaliser;
  if (n > 0) scored.top = likeliest(logits_of_tokens(model, logits), normaliser, n);
  return scored;
}

}  // namespace winnow
