#include "server/answer_events.h"

#include "base/utf8.h"

namespace winnow::server {
namespace {

// Returns the end with kToolCalls as its cause if the model has stopped after tool calls, whose results it waits for.
AnswerEnd with_calls(AnswerEnd end, const std::optional<ChatReader>& reader) {
  const bool has_calls = reader && !reader->message().tool_calls.empty();
  if (has_calls && end.cause == AnswerCause::kStop) end.cause = AnswerCause::kToolCalls;
  return end;
}

}  // namespace

AnswerReader::AnswerReader(const ApiRequest& request) : answers_(static_cast<std::size_t>(request.n_answers())) {
  if (request.format == nullptr) return;
  for (Answer& answer : answers_) answer.reader.emplace(request.format);
}

std::size_t AnswerReader::bytes_at_once(int answer) const {
  const Answer& of = answers_[static_cast<std::size_t>(answer)];
  return of.reader ? of.n_characters / 8 : 0;
}

std::vector<AnswerEvent> AnswerReader::read(const TextPiece& piece) {
  Answer& to = answer(piece.answer);
  std::vector<AnswerEvent> events;
  const std::size_t offset = to.n_characters;
  to.n_characters += count_characters(piece.text);
  if (to.reader) {
    for (ChatDelta& delta : to.reader->add(piece.text)) {
      events.emplace_back(AnswerDelta{.answer = piece.answer, .delta = std::move(delta)});
    }
    return events;
  }
  events.push_back(
      AnswerDelta{.answer = piece.answer, .delta = {.content = piece.text}, .tokens = piece.tokens, .offset = offset});
  return events;
}

std::vector<AnswerEvent> AnswerReader::read(const AnswerEnd& end) {
  Answer& to = answer(end.answer);
  std::vector<AnswerEvent> events;
  if (to.reader) {
    for (ChatDelta& delta : to.reader->finish()) {
      events.push_back(AnswerDelta{.answer = end.answer, .delta = std::move(delta)});
    }
  }
  events.push_back(with_calls(end, to.reader));
  return events;
}

void AnswerReader::add(const TextPiece& piece) {
  Answer& to = answer(piece.answer);
  WholeAnswer& whole = to.whole;
  whole.tokens.insert(whole.tokens.end(), piece.tokens.begin(), piece.tokens.end());
  whole.offsets.resize(whole.tokens.size(), to.n_characters);
  whole.message.content += piece.text;
  to.n_characters += count_characters(piece.text);
}

void AnswerReader::add(const AnswerEnd& end) {
  Answer& to = answer(end.answer);
  // The text is parsed once, at the end: parsing it as it arrives would take as many passes as there are tokens.
  if (to.reader) {
    to.reader->add(to.whole.message.content);
    to.reader->finish();
    to.whole.message = to.reader->message();
  }
  to.whole.end = with_calls(end, to.reader);
}

std::vector<WholeAnswer> AnswerReader::take_all() {
  std::vector<WholeAnswer> all;
  for (Answer& answer : answers_) all.push_back(std::move(answer.whole));
  return all;
}

}  // namespace winnow::server
