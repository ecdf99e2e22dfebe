// The texts of a vocabulary's tokens in the order of their bytes: those that begin alike stand beside each other.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "winnow/model.h"

namespace winnow {

class Tokenizer;

struct TokenPieces {
  explicit TokenPieces(const Tokenizer& tokenizer);

  std::string_view text(std::size_t i) const {
    return std::string_view(bytes).substr(begin[i], begin[i + 1] - begin[i]);
  }

  // Those that end an answer; they are not among the others, as tokens without text are not.
  std::vector<Token> ends;
  std::vector<Token> tokens;            // [n]
  std::vector<std::uint32_t> n_shared;  // [n]: bytes at its beginning that it has in common with the one before
  std::size_t longest = 0;              // bytes of the longest token, ends included
  std::string bytes;
  std::vector<std::uint32_t> begin;  // [n + 1], in bytes
};

}  // namespace winnow
