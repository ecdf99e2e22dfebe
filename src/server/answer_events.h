// What the model writes, as the events of answers that dialects are given.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "server/dialects/dialect.h"
#include "server/generation.h"

namespace winnow::server {

using AnswerEvent = std::variant<AnswerDelta, AnswerEnd>;

// Reads thoughts and calls out of a request's answers. Not thread-safe.
class AnswerReader {
 public:
  explicit AnswerReader(const ApiRequest& request);

  // For a stream.
  std::vector<AnswerEvent> read(const TextPiece& piece);
  std::vector<AnswerEvent> read(const AnswerEnd& end);

  // For answers that are not: every piece and end, then all of them.
  void add(const TextPiece& piece);
  void add(const AnswerEnd& end);
  std::vector<WholeAnswer> take_all();

 private:
  struct Answer {
    std::optional<ChatReader> reader;  // of one that is more than text
    std::size_t n_characters = 0;      // of text so far
    WholeAnswer whole;
  };
  Answer& answer(int index) { return answers_[static_cast<std::size_t>(index)]; }

  std::vector<Answer> answers_;
};

}  // namespace winnow::server
