#include "eval/run/continuation.h"

#include <algorithm>
#include <cmath>

#include "eval/run/decoding.h"

namespace winnow::eval {
namespace {

void take_log_softmax(std::span<const float> logits, std::vector<float>& row) {
  const float largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - largest);
  const auto shift = static_cast<float>(largest + std::log(sum));
  row.resize(logits.size());
  std::transform(logits.begin(), logits.end(), row.begin(), [shift](float logit) { return logit - shift; });
}

double divergence(std::span<const float> p, std::span<const float> q) {
  double sum = 0;
  for (std::size_t i = 0; i < p.size(); ++i) sum += std::exp(p[i]) * (p[i] - q[i]);
  return std::max(sum, 0.0);  // rounding
}

}  // namespace

ContinuationResult force_continuation(Session& session, std::span<const Token> continuation, std::size_t n_feed,
                                      const ReferencePredictions* reference, ReferencePredictions* record,
                                      const ProgressCallback& on_progress) {
  n_feed = std::min(n_feed, continuation.size());
  ContinuationResult result;
  double nll = 0, kl = 0;
  int n_equal = 0;
  std::size_t place = 0;
  std::vector<float> row;
  PrefillOptions options;
  options.on_progress = on_progress;
  options.on_logits = [&](std::int32_t, std::span<const float> logits) {
    take_log_softmax(logits, row);
    if (place + 1 < continuation.size()) {
      nll -= row[static_cast<std::size_t>(continuation[place + 1])];
      ++result.nll_tokens;
    }
    if (reference != nullptr) {
      kl += divergence(reference->rows[place], row);
      n_equal += most_likely(reference->rows[place]) == most_likely(row);
    }
    if (record != nullptr) record->rows.push_back(row);
    ++place;
  };
  session.append(continuation.first(n_feed), options);
  const auto n = static_cast<double>(n_feed);
  result.nll = result.nll_tokens > 0 ? nll / result.nll_tokens : 0;
  if (reference != nullptr) {
    result.kl = kl / n;
    result.top1 = n_equal / n;
  }
  return result;
}

}  // namespace winnow::eval
