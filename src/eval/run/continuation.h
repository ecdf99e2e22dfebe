// Forcing a true continuation through a cut cache, and comparing its predictions with those of the full cache.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "winnow/session.h"

namespace winnow::eval {

// The full cache's log-probabilities after every token of a continuation.
struct ReferencePredictions {
  std::vector<std::vector<float>> rows;  // [n_tokens][n_vocab], natural logarithms
};

// Means over the tokens. The continuation's first token is predicted by the prompt alone, before anything is dropped,
// and does not count.
struct ContinuationResult {
  double nll = 0;  // nats
  int nll_tokens = 0;
  std::optional<double> kl;    // KL(full || this), nats
  std::optional<double> top1;  // share of equal most likely tokens
};

// Feeds the first n_feed tokens of `continuation` to the session (all entries stay) and looks at what it predicts after
// each. `reference`: compare with it; `record`: keep the predictions as a reference.
ContinuationResult force_continuation(Session& session, std::span<const Token> continuation, std::size_t n_feed,
                                      const ReferencePredictions* reference, ReferencePredictions* record,
                                      const ProgressCallback& on_progress);

}  // namespace winnow::eval
