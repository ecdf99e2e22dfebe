// Turns the text that the model writes into the answer events that dialects take.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "server/dialects/dialect.h"
#include "server/generation.h"

namespace winnow::server {

using AnswerEvent = std::variant<AnswerDelta, AnswerEnd>;

// Parses the thinking and tool calls in a request's answers. Not thread-safe.
class AnswerReader {
 public:
  explicit AnswerReader(const ApiRequest& request);

  // For a stream: returns the bytes of an answer to read together if they have arrived. With a format, each piece has
  // the whole answer parsed again; a fixed share of it at a time makes catching up take time in proportion to its
  // length.
  std::size_t bytes_at_once(int answer) const;
  // For a stream: return the events of a piece and of an end.
  std::vector<AnswerEvent> read(const TextPiece& piece);
  std::vector<AnswerEvent> read(const AnswerEnd& end);

  // For answers that are not streamed: take every piece and end, then return all answers.
  void add(const TextPiece& piece);
  void add(const AnswerEnd& end);
  std::vector<WholeAnswer> take_all();

 private:
  struct Answer {
    std::optional<ChatReader> reader;  // set if the answer has a format (ApiRequest::format)
    std::size_t n_characters = 0;      // of text so far
    WholeAnswer whole;
  };
  Answer& answer(int index) { return answers_[static_cast<std::size_t>(index)]; }

  std::vector<Answer> answers_;
};

}  // namespace winnow::server
