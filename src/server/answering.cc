#include "server/answering.h"

#include "server/http_server.h"

namespace winnow::server {
namespace {

// How often a wait looks whether the client is still there.
constexpr std::chrono::milliseconds kLook{200};

ApiError broken_off() { return ApiError(503, "the answer was broken off: the server is about to end", "", "stopping"); }

ApiError error_of(const BatchResult& result) {
  if (result.reason == FinishReason::kCancelled) return broken_off();
  return api_error(result.error_code, result.error);
}

bool is_failed(const BatchResult& result) {
  return result.reason == FinishReason::kError || result.reason == FinishReason::kCancelled;
}

// The next event. Throws ApiError past the deadline, and once nobody is there to read.
GenerationEvent next_event(Answering& answering) {
  for (;;) {
    std::optional<GenerationEvent> event = answering.generation->next(kLook);
    if (event && std::holds_alternative<BatchResult>(*event)) return std::move(*event);
    const Connection* connection = HttpServer::current();
    if (connection != nullptr && connection->is_closed()) throw ApiError(499, "the client went away");
    // An answer that ended within the grace is still told, however late this thread wakes.
    if (connection != nullptr && connection->is_stopping() && !answering.generation->is_done()) throw broken_off();
    if (std::chrono::steady_clock::now() > answering.deadline) {
      throw ApiError(503, "the answer took longer than this server allows: ask for less, or later", "", "timeout");
    }
    if (event) return std::move(*event);
  }
}

std::string event_text(const Json& json) { return "data: " + to_text(json) + "\n\n"; }

std::string event_texts(const std::vector<Json>& all) {
  std::string text;
  for (const Json& json : all) text += event_text(json);
  return text;
}

// What the client is sent next. `is_over`: nothing follows.
std::string stream_text(Answering& answering, bool& is_over) {
  AnswerJson& json = *answering.json;
  const GenerationEvent event = next_event(answering);
  if (const auto* piece = std::get_if<TextPiece>(&event)) return event_texts(json.chunks(*piece));
  if (const auto* end = std::get_if<AnswerEnd>(&event)) return event_texts(json.chunks(*end));
  const auto* result = std::get_if<BatchResult>(&event);
  if (result == nullptr) return "";
  is_over = true;
  answering.on_done(*result);
  if (is_failed(*result)) return event_text(error_of(*result).body());
  return (answering.request.wants_usage ? event_text(json.usage_chunk(*result)) : "") + "data: [DONE]\n\n";
}

}  // namespace

void answer_at_once(Answering& answering, httplib::Response& response) {
  for (;;) {
    const GenerationEvent event = next_event(answering);
    if (const auto* piece = std::get_if<TextPiece>(&event)) answering.json->add(*piece);
    if (const auto* end = std::get_if<AnswerEnd>(&event)) answering.json->add(*end);
    const auto* result = std::get_if<BatchResult>(&event);
    if (result == nullptr) continue;
    answering.on_done(*result);
    if (is_failed(*result)) throw error_of(*result);
    response.set_content(to_text(answering.json->whole(*result)), "application/json");
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
      if (is_first) {
        text += event_texts(answering->json->first_chunks());
      }
      is_first = false;
      text += stream_text(*answering, is_over);
    } catch (const ApiError& error) {
      if (error.status == 499) return false;
      text += event_text(error.body());
      is_over = true;
    }
    if (!text.empty() && !sink.write(text.data(), text.size())) return false;
    if (is_over) sink.done();
    return true;
  };
  response.set_chunked_content_provider("text/event-stream", provide);
}

}  // namespace winnow::server
