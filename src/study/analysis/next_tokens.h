// Predictions of a fixed continuation by the full cache and by cut ones.
#pragma once

#include <span>
#include <vector>

#include "study/analysis/analysis.h"

namespace winnow {

// Appends all tokens but the last. Returns the logits [n_predictions][n_vocab] that predict tokens[first], tokens[first
// + 1], ...; the session's last token predicts tokens[0].
std::vector<std::vector<float>> predict(Session& session, std::span<const Token> tokens, int first);

// Compares the predictions of `tokens` [n], the true ones; both are [n][n_vocab].
NextTokens compare_predictions(std::span<const std::vector<float>> full, std::span<const std::vector<float>> cut,
                               std::span<const Token> tokens);

}  // namespace winnow
