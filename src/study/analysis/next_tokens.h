// Predictions of a fixed continuation, of the full cache and of others.
#pragma once

#include <span>
#include <vector>

#include "study/analysis/analysis.h"

namespace winnow {

// Logits [n_predictions][n_vocab] of tokens[first], tokens[first + 1], ...: after the session's last token and after
// each of the tokens but the last, which are appended.
std::vector<std::vector<float>> predict(Session& session, std::span<const Token> tokens, int first);

// Both [n][n_vocab]; tokens [n] are those that came.
NextTokens compare_predictions(std::span<const std::vector<float>> full, std::span<const std::vector<float>> cut,
                               std::span<const Token> tokens);

}  // namespace winnow
