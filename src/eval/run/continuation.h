// Forces tokens through a cut cache and compares its predictions with those of the full cache.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "winnow/session.h"

namespace winnow::eval {

// The tokens to force: a text's true continuation, or an answer.
struct Continuation {
  std::vector<Token> tokens;
  std::size_t n_feed = 0;  // tokens to feed; the prediction after each counts
  // True if the prediction of the first token counts, too. It is false if the prompt alone makes that prediction,
  // before any entry is dropped.
  bool counts_first = false;
};

// The full cache's log-probabilities, a row for every prediction that counts.
struct ReferencePredictions {
  std::vector<std::vector<float>> rows;  // [n_predictions][n_vocab], natural logarithms
};

// Means over the predictions that count.
struct ContinuationResult {
  double nll = 0;  // nats
  int nll_tokens = 0;
  std::optional<double> kl;    // KL(full || this), nats
  std::optional<double> top1;  // share of equal most likely tokens
};

// Feeds the continuation to the session (all entries stay) and returns the means over its predictions. Compares them
// with `reference` and appends them to `record`; either may be null.
ContinuationResult force_continuation(Session& session, const Continuation& continuation,
                                      const ReferencePredictions* reference, ReferencePredictions* record,
                                      const ProgressCallback& on_progress);

}  // namespace winnow::eval
