// Passages of a user's texts: the contexts of calibration and analyses.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "winnow/model.h"

namespace winnow {

// `tokens` as text, without the halves of characters at its ends that a cut between two tokens may leave.
std::string passage_text(const Model& model, std::span<const Token> tokens);

// Each token's text, special ones included. A character of several tokens goes to the last of them, so that every text
// is valid UTF-8; what never becomes a character is left out.
std::vector<std::string> token_texts(const Model& model, std::span<const Token> tokens);

// n passages of n_tokens tokens each, chosen by the seed among those that follow each other in the texts without
// overlap. The first passages of a larger n are those of a smaller one. Throws Error(kInvalidArgument) where the texts
// have less than n.
std::vector<std::string> choose_passages(const Model& model, std::span<const std::string> texts, int n, int n_tokens,
                                         std::uint64_t seed);

}  // namespace winnow
