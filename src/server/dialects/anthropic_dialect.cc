#include "server/dialects/anthropic_dialect.h"

#include "server/answer_json.h"
#include "server/dialects/anthropic_request.h"

namespace winnow::server {
namespace {

const char* stop_reason(AnswerCause cause) {
  switch (cause) {
    case AnswerCause::kStopText:
      return "stop_sequence";
    case AnswerCause::kLength:
      return "max_tokens";
    case AnswerCause::kToolCalls:
      return "tool_use";
    case AnswerCause::kStop:
    case AnswerCause::kError:
      break;
  }
  return "end_turn";
}

Json stop_json(const AnswerEnd& end) {
  const bool is_text = end.cause == AnswerCause::kStopText;
  return {{"stop_reason", stop_reason(end.cause)}, {"stop_sequence", is_text ? Json(end.stop) : Json(nullptr)}};
}

Json message_usage(const BatchResult& result) {
  return {{"input_tokens", result.prompt_tokens - result.cached_tokens},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", result.cached_tokens},
          {"output_tokens", result.answer_tokens}};
}

// Returns a call's id, or a new one, since some formats of calls have none.
std::string call_id(const std::string& id) { return id.empty() ? random_id("toolu_") : id; }

std::string event(const char* type, Json fields) {
  fields["type"] = type;
  return "event: " + std::string(type) + "\ndata: " + to_text(fields) + "\n\n";
}

const char* error_type(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    default:
      return status >= 500 ? "api_error" : "invalid_request_error";
  }
}

}  // namespace

Json anthropic_error(const ApiError& error) {
  std::string message = error.what();
  if (error.n_tokens > 0) {  // Claude Code looks for these words and numbers
    message = "prompt is too long: " + std::to_string(error.n_tokens) + " tokens > " +
              std::to_string(error.most_tokens) + " maximum";
  }
  return {{"type", "error"}, {"error", {{"type", error_type(error.status)}, {"message", message}}}};
}

AnthropicDialect::AnthropicDialect(std::string model_name)
    : id_(random_id("msg_")), model_name_(std::move(model_name)) {}

ApiRequest AnthropicDialect::parse(Json body, const Model& model, const RequestDefaults& defaults) {
  ApiRequest request = parse_request(Endpoint::kChat, translate_messages(std::move(body)), model, defaults);
  if (!request.model.empty()) model_name_ = request.model;
  n_prompt_tokens_ = request.n_prompt_tokens();
  return request;
}

Json AnthropicDialect::head() const {
  return {{"id", id_}, {"type", "message"}, {"role", "assistant"}, {"model", model_name_}};
}

std::string AnthropicDialect::whole(const std::vector<WholeAnswer>& answers, const BatchResult& result) {
  const WholeAnswer& answer = answers.front();
  Json content = Json::array();
  if (!answer.message.reasoning.empty()) {
    content.push_back({{"type", "thinking"}, {"thinking", answer.message.reasoning}, {"signature", ""}});
  }
  if (!answer.message.content.empty()) content.push_back({{"type", "text"}, {"text", answer.message.content}});
  for (const ChatToolCall& call : answer.message.tool_calls) {
    content.push_back({{"type", "tool_use"},
                       {"id", call_id(call.id)},
                       {"name", call.name},
                       {"input", arguments_json(call.arguments)}});
  }
  Json message = head();
  message["content"] = std::move(content);
  message.update(stop_json(answer.end));
  message["usage"] = message_usage(result);
  message["timings"] = timings_json(result);
  return to_text(message);
}

std::string AnthropicDialect::begin() {
  Json message = head();
  message["content"] = Json::array();
  message["stop_reason"] = nullptr;
  message["stop_sequence"] = nullptr;
  // The number of cached tokens is known only at the end.
  message["usage"] = {{"input_tokens", n_prompt_tokens_}, {"output_tokens", 0}};
  return event("message_start", {{"message", std::move(message)}});
}

std::string AnthropicDialect::close_block() {
  if (block_ == Block::kNone) return "";
  std::string text;
  if (block_ == Block::kThinking) text = piece("signature_delta", "signature", "");
  block_ = Block::kNone;
  return text + event("content_block_stop", {{"index", index_}});
}

std::string AnthropicDialect::open_block(Block block, const Json& content, int call) {
  if (block_ == block && call_ == call) return "";
  std::string text = close_block();
  block_ = block;
  call_ = call;
  ++index_;
  return text + event("content_block_start", {{"index", index_}, {"content_block", content}});
}

std::string AnthropicDialect::piece(const char* kind, const char* name, const std::string& text) const {
  return event("content_block_delta", {{"index", index_}, {"delta", {{"type", kind}, {name, text}}}});
}

std::string AnthropicDialect::delta(const AnswerDelta& answer) {
  const ChatDelta& delta = answer.delta;
  std::string text;
  if (!delta.reasoning.empty()) {
    text += open_block(Block::kThinking, {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}});
    text += piece("thinking_delta", "thinking", delta.reasoning);
  }
  if (!delta.content.empty()) {
    text += open_block(Block::kText, {{"type", "text"}, {"text", ""}});
    text += piece("text_delta", "text", delta.content);
  }
  if (delta.tool_call >= 0) {
    text +=
        open_block(Block::kTool,
                   {{"type", "tool_use"}, {"id", call_id(delta.id)}, {"name", delta.name}, {"input", Json::object()}},
                   delta.tool_call);
    if (!delta.arguments.empty()) text += piece("input_json_delta", "partial_json", delta.arguments);
  }
  return text;
}

std::string AnthropicDialect::finish(const AnswerEnd& end) {
  end_ = end;
  return close_block();
}

std::string AnthropicDialect::end(const BatchResult& result) {
  return event("message_delta", {{"delta", stop_json(end_)}, {"usage", message_usage(result)}}) +
         event("message_stop", Json::object());
}

std::string AnthropicDialect::error(const ApiError& error) { return sse_text(anthropic_error(error), "error"); }

std::string AnthropicDialect::ping() const { return event("ping", Json::object()); }

}  // namespace winnow::server
