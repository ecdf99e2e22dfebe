#include "text/piece_memo.h"

#include <algorithm>
#include <utility>

namespace winnow {

std::optional<std::vector<Token>> PieceMemo::find(std::string_view text, bool parses_special) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(pieces_.begin(), pieces_.end(), [&](const Piece& piece) {
    return piece.parses_special == parses_special && piece.text == text;
  });
  if (found == pieces_.end()) return std::nullopt;
  pieces_.splice(pieces_.begin(), pieces_, found);
  return found->tokens;
}

void PieceMemo::add(std::string_view text, bool parses_special, const std::vector<Token>& tokens) {
  Piece piece{.text = std::string(text), .parses_special = parses_special, .tokens = tokens};
  if (piece.bytes() > most_bytes_) return;
  const std::lock_guard lock(mutex_);
  bytes_ += piece.bytes();
  pieces_.push_front(std::move(piece));
  while (bytes_ > most_bytes_) {
    bytes_ -= pieces_.back().bytes();
    pieces_.pop_back();
  }
}

std::size_t PieceMemo::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

}  // namespace winnow
