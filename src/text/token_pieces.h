// The texts of a vocabulary's tokens in the order of their bytes, so that tokens with a common beginning are
// neighbours.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "winnow/token.h"

namespace winnow {

class Tokenizer;

// The sorted texts.
struct TokenPieces {
  explicit TokenPieces(const Tokenizer& tokenizer);

  std::string_view text(std::size_t i) const {
    return std::string_view(bytes).substr(begin[i], begin[i + 1] - begin[i]);
  }

  // Tokens that end an answer. Neither they nor tokens without text are among `tokens`.
  std::vector<Token> ends;
  std::vector<Token> tokens;            // [n]
  std::vector<std::uint32_t> n_shared;  // [n] bytes at a text's beginning that the text before has, too
  std::size_t longest = 0;              // bytes of the longest text, those of `ends` included
  std::string bytes;                    // all texts, one after the other
  std::vector<std::uint32_t> begin;     // [n + 1] the texts' places in `bytes`
};

}  // namespace winnow
