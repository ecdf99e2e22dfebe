#include "server/answering.h"

#include <algorithm>
#include <cmath>

#include "server/http_server.h"

namespace winnow::server {
namespace {

// A patience that is longer than any deadline.
constexpr std::chrono::milliseconds kForever = std::chrono::hours(24 * 365);

ApiError broken_off() { return ApiError(503, "the answer was cut off: the server is shutting down", "", "stopping"); }

// Returns the next event, or nullopt if none came within `patience`. Throws ApiError past the deadline, and once the
// client has gone away.
std::optional<GenerationEvent> next_event(Answering& answering, std::chrono::milliseconds patience) {
  const auto begin = std::chrono::steady_clock::now();
  for (;;) {
    std::optional<GenerationEvent> event = answering.generation->next(std::min(kLook, patience));
    if (event && std::holds_alternative<BatchResult>(*event)) return event;
    // An answer that has ended within the grace period is still sent, however late this thread wakes.
    check_still_wanted(answering.deadline, answering.generation->is_done());
    if (event) return event;
    if (std::chrono::steady_clock::now() - begin > patience) return std::nullopt;
  }
}

GenerationEvent next_event(Answering& answering) { return *next_event(answering, kForever); }

std::string texts_of(Dialect& dialect, const std::vector<AnswerEvent>& events) {
  std::string text;
  for (const AnswerEvent& event : events) {
    const auto* delta = std::get_if<AnswerDelta>(&event);
    text += delta != nullptr ? dialect.delta(*delta) : dialect.finish(std::get<AnswerEnd>(event));
  }
  return text;
}

// Returns the text to send to the client next. Sets is_over if it is the last.
std::string stream_text(Answering& answering, bool& is_over) {
  Dialect& dialect = *answering.dialect;
  auto patience = kForever;
  if (answering.ping_s > 0) patience = std::chrono::milliseconds(std::llround(answering.ping_s * 1e3));
  std::optional<GenerationEvent> event = next_event(answering, patience);
  if (!event) return dialect.ping();
  if (auto* piece = std::get_if<TextPiece>(&*event)) {
    piece->text += answering.generation->more_text(piece->answer, answering.reader->bytes_at_once(piece->answer));
    return texts_of(dialect, answering.reader->read(*piece));
  }
  if (const auto* end = std::get_if<AnswerEnd>(&*event)) return texts_of(dialect, answering.reader->read(*end));
  const auto* result = std::get_if<BatchResult>(&*event);
  if (result == nullptr) return "";
  is_over = true;
  answering.on_done(*result);
  return has_failed(*result) ? dialect.error(error_of(*result)) : dialect.end(*result);
}

}  // namespace

ApiError error_of(const BatchResult& result) {
  if (result.reason == FinishReason::kCancelled) return broken_off();
  return api_error(result.error_code, result.error);
}

void check_still_wanted(std::chrono::steady_clock::time_point deadline, bool is_done) {
  const Connection* connection = HttpServer::current();
  if (connection != nullptr && connection->is_closed()) throw ApiError(499, "the client went away");
  if (connection != nullptr && connection->is_stopping() && !is_done) throw broken_off();
  if (std::chrono::steady_clock::now() > deadline) {
    throw ApiError(503, "the answer took longer than this server allows: ask for less, or try again later", "",
                   "timeout");
  }
}

void answer_at_once(Answering& answering, httplib::Response& response) {
  for (;;) {
    const GenerationEvent event = next_event(answering);
    if (const auto* piece = std::get_if<TextPiece>(&event)) answering.reader->add(*piece);
    if (const auto* end = std::get_if<AnswerEnd>(&event)) answering.reader->add(*end);
    if (const auto* scores = std::get_if<PromptScores>(&event)) answering.dialect->take_scores(*scores);
    const auto* result = std::get_if<BatchResult>(&event);
    if (result == nullptr) continue;
    answering.on_done(*result);
    if (has_failed(*result)) throw error_of(*result);
    response.set_content(answering.dialect->whole(answering.reader->take_all(), *result), "application/json");
    return;
  }
}

void answer_as_stream(std::shared_ptr<Answering> answering, httplib::Response& response) {
  const GenerationEvent first = next_event(*answering);
  if (const auto* result = std::get_if<BatchResult>(&first)) {
    answering->on_done(*result);
    throw error_of(*result);
  }
  response.set_header("Cache-Control", "no-cache");
  response.set_header("X-Accel-Buffering", "no");  // nginx would collect the stream otherwise
  const auto provide = [answering, is_first = true](std::size_t, httplib::DataSink& sink) mutable {
    std::string text;
    bool is_over = false;
    try {
      text = is_first ? answering->dialect->begin() : stream_text(*answering, is_over);
      is_first = false;
    } catch (const std::exception& failure) {  // the library's own handlers do not see what is thrown here
      const ApiError error = api_error(failure);
      if (error.status == 499) return false;
      text = answering->dialect->error(error);
      is_over = true;
    }
    if (!text.empty() && !sink.write(text.data(), text.size())) return false;
    if (is_over) sink.done();
    return true;
  };
  const Connection* connection = HttpServer::current();
  if (connection == nullptr || connection->takes_chunks()) {
    response.set_chunked_content_provider(answering->dialect->stream_type(), provide);
  } else {  // the stream ends with its connection
    response.set_content_provider(answering->dialect->stream_type(), provide);
  }
}

}  // namespace winnow::server
