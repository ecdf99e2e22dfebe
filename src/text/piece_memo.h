// A memo of the tokens of pieces of text. A growing chat begins at every turn as it did at the turn before.
#pragma once

#include <cstddef>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "winnow/token.h"

namespace winnow {

// The memo. Thread-safe.
class PieceMemo {
 public:
  // Takes the most bytes that it may hold; the least recently used pieces are removed to make room.
  explicit PieceMemo(std::size_t most_bytes) : most_bytes_(most_bytes) {}

  // Returns the tokens of a text that was added with the same parses_special, or nullopt.
  std::optional<std::vector<Token>> find(std::string_view text, bool parses_special);
  void add(std::string_view text, bool parses_special, const std::vector<Token>& tokens);
  std::size_t bytes() const;

 private:
  struct Piece {
    std::string text;
    bool parses_special = false;
    std::vector<Token> tokens;

    std::size_t bytes() const { return sizeof(Piece) + text.size() + tokens.size() * sizeof(Token); }
  };

  const std::size_t most_bytes_;
  mutable std::mutex mutex_;
  std::list<Piece> pieces_;  // most recently used first; each has some KiB, so that they are few
  std::size_t bytes_ = 0;
};

}  // namespace winnow
