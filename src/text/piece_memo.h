// Tokens of pieces of text that were asked for before: a growing chat begins at every turn as it did at the one before.
#pragma once

#include <cstddef>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "winnow/model.h"

namespace winnow {

// Thread-safe.
class PieceMemo {
 public:
  // most_bytes: of all that it holds; what was asked for longest ago makes room.
  explicit PieceMemo(std::size_t most_bytes) : most_bytes_(most_bytes) {}

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
  std::list<Piece> pieces_;  // asked for last first; each of some KiB, so they are few
  std::size_t bytes_ = 0;
};

}  // namespace winnow
