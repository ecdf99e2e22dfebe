#include "eval/run/continuation.h"

#include <algorithm>
#include <cmath>

#include "eval/run/decoding.h"
#include "winnow/log_softmax.h"

namespace winnow::eval {
ContinuationResult force_continuation(Session& session, std::span<const Token> continuation, std::size_t n_feed,
                                      const ReferencePredictions* reference, ReferencePredictions* record,
                                      const ProgressCallback& on_progress) {
  n_feed = std::min(n_feed, continuation.size());
  ContinuationResult result;
  double nll = 0, kl = 0;
  int n_equal = 0;
  std::size_t place = 0;
  std::vector<float> row;  // [n_vocab] log-probabilities
  PrefillOptions options;
  options.on_progress = on_progress;
  options.on_logits = [&](std::int32_t, std::span<const float> logits) {
    row.resize(logits.size());
    log_softmax(logits, row);
    if (place + 1 < continuation.size()) {
      nll -= row[static_cast<std::size_t>(continuation[place + 1])];
      ++result.nll_tokens;
    }
    if (reference != nullptr) {
      kl += kl_divergence(reference->rows[place], 0, row, 0);
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
