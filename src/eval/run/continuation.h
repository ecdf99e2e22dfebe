// Forcing tokens through a cut cache, and comparing its predictions with those of the full cache.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "winnow/session.h"

namespace winnow::eval {

// What is forced: a text's true continuation, or an answer.
struct Continuation {
  std::vector<Token> tokens;
  std::size_t n_feed = 0;  // of them; the prediction after each counts
  // The prediction of the first counts, too. It does not where the prompt alone makes it, before anything is dropped.
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

// Feeds the continuation to the session (all entries stay) and looks at what it predicts. `reference`: compare with it;
// `record`: keep the predictions as a reference.
ContinuationResult force_continuation(Session& session, const Continuation& continuation,
                                      const ReferencePredictions* reference, ReferencePredictions* record,
                                      const ProgressCallback& on_progress);

}  // namespace winnow::eval
