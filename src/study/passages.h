// Passages of a user's texts: the contexts of calibration and analyses.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "winnow/model.h"

namespace winnow {

// Returns `tokens` as text, without the parts of characters at its ends that a cut between two tokens may leave.
std::string passage_text(const Model& model, std::span<const Token> tokens);

// Returns each token's text, special ones included. A character of several tokens goes to the last of them, so that
// every text is valid UTF-8; bytes that never become a character are left out.
std::vector<std::string> token_texts(const Model& model, std::span<const Token> tokens);

// Returns n passages of n_tokens tokens each, chosen by the seed among the consecutive, disjoint passages of the texts.
// A larger n begins with the passages of a smaller one. Throws Error(kInvalidArgument) if the texts have less than n.
std::vector<std::string> choose_passages(const Model& model, std::span<const std::string> texts, int n, int n_tokens,
                                         std::uint64_t seed);

}  // namespace winnow
