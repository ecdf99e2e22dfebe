#include "eval/run/continuation.h"

#include <algorithm>
#include <cmath>

#include "eval/run/decoding.h"
#include "winnow/log_softmax.h"

namespace winnow::eval {
ContinuationResult force_continuation(Session& session, const Continuation& continuation,
                                      const ReferencePredictions* reference, ReferencePredictions* record,
                                      const ProgressCallback& on_progress) {
  const std::span<const Token> tokens = continuation.tokens;
  ContinuationResult result;
  double nll = 0, kl = 0;
  int n_equal = 0;
  std::size_t n_rows = 0;
  std::size_t next = continuation.counts_first ? 0 : 1;  // the token that is predicted
  std::vector<float> row;                                // [n_vocab] log-probabilities
  const auto look = [&](std::span<const float> logits) {
    row.resize(logits.size());
    log_softmax(logits, row);
    if (next < tokens.size()) {
      nll -= row[static_cast<std::size_t>(tokens[next])];
      ++result.nll_tokens;
    }
    if (reference != nullptr) {
      kl += kl_divergence(reference->rows[n_rows], 0, row, 0);
      n_equal += most_likely(reference->rows[n_rows]) == most_likely(row);
    }
    if (record != nullptr) record->rows.push_back(row);
    ++next;
    ++n_rows;
  };
  if (continuation.counts_first) look(session.logits());
  PrefillOptions options;
  options.on_progress = on_progress;
  options.on_logits = [&](std::int32_t, std::span<const float> logits) { look(logits); };
  const std::size_t n_feed = std::min(continuation.n_feed, tokens.size());
  if (n_feed > 0) session.append(tokens.first(n_feed), options);
  const auto n = static_cast<double>(n_rows);
  result.nll = result.nll_tokens > 0 ? nll / result.nll_tokens : 0;
  if (reference != nullptr) {
    result.kl = kl / n;
    result.top1 = n_equal / n;
  }
  return result;
}

}  // namespace winnow::eval
