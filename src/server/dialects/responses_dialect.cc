#include "server/dialects/responses_dialect.h"

#include <utility>

#include "server/answer_json.h"

namespace winnow::server {

ResponsesDialect::ResponsesDialect(std::string model_name, std::shared_ptr<ResponseStore> store)
    : id_(random_id("resp_")), created_(unix_seconds()), model_name_(std::move(model_name)), store_(std::move(store)) {}

ApiRequest ResponsesDialect::parse(Json body, const Model& model, const RequestDefaults& defaults) {
  request_ = translate_responses(std::move(body), *store_);
  ApiRequest request = parse_request(Endpoint::kChat, request_.body, model, defaults);
  if (!request.model.empty()) model_name_ = request.model;
  model_ = &model;
  request_.body = {};
  return request;
}

Json ResponsesDialect::part_json(const Item& item, const std::string& text) {
  if (item.kind == Kind::kReasoning) return {{"type", "reasoning_text"}, {"text", text}};
  return {{"type", "output_text"}, {"text", text}, {"annotations", Json::array()}, {"logprobs", Json::array()}};
}

Json ResponsesDialect::item_json(const Item& item, bool is_done) {
  const std::string text = is_done ? item.text : "";
  const char* status = !is_done ? "in_progress" : item.is_cut ? "incomplete" : "completed";
  Json content = Json::array();
  if (is_done) content.push_back(part_json(item, text));
  if (item.kind == Kind::kCall) {
    return {{"type", "function_call"}, {"id", item.id},     {"call_id", item.call_id},
            {"name", item.name},       {"arguments", text}, {"status", status}};
  }
  if (item.kind == Kind::kReasoning) {
    return {
        {"type", "reasoning"}, {"id", item.id}, {"summary", Json::array()}, {"content", content}, {"status", status}};
  }
  return {{"type", "message"}, {"id", item.id}, {"role", "assistant"}, {"content", content}, {"status", status}};
}

Json ResponsesDialect::response_json(const char* status) const {
  Json response = {{"id", id_},
                   {"object", "response"},
                   {"created_at", created_},
                   {"status", status},
                   {"model", model_name_},
                   {"error", nullptr},
                   {"incomplete_details", nullptr},
                   {"store", request_.is_stored}};
  response.update(request_.given);
  response["output"] = Json::array();
  response["usage"] = nullptr;
  return response;
}

ResponsesDialect::Item& ResponsesDialect::add(Kind kind, const std::string& call_id, const std::string& name,
                                              int call) {
  const char* prefix = kind == Kind::kReasoning ? "rs_" : kind == Kind::kMessage ? "msg_" : "fc_";
  items_.push_back({.kind = kind,
                    .id = random_id(prefix),
                    .call_id = kind == Kind::kCall && call_id.empty() ? random_id("call_") : call_id,
                    .name = name,
                    .text = "",
                    .call = call});
  return items_.back();
}

Json ResponsesDialect::finished(const BatchResult& result) {
  const bool is_cut = cause_ == AnswerCause::kLength;
  Json response = response_json(is_cut ? "incomplete" : "completed");
  if (is_cut) response["incomplete_details"] = {{"reason", "max_output_tokens"}};
  Json message = {{"role", "assistant"}, {"content", ""}};
  std::size_t n_thought = 0;
  for (const Item& item : items_) {
    response["output"].push_back(item_json(item, true));
    if (item.kind == Kind::kMessage) message["content"] = item.text;
    if (item.kind == Kind::kReasoning) {
      message["reasoning_content"] = item.text;
      n_thought += model_->tokenize(item.text, false, false).size();
    }
    // A call that was cut off has no arguments that a template could show.
    if (item.kind == Kind::kCall && !item.is_cut) {
      message["tool_calls"].push_back(
          {{"id", item.call_id}, {"type", "function"}, {"function", {{"name", item.name}, {"arguments", item.text}}}});
    }
  }
  response["usage"] = {{"input_tokens", result.prompt_tokens},
                       {"input_tokens_details", {{"cached_tokens", result.cached_tokens}}},
                       {"output_tokens", result.answer_tokens},
                       {"output_tokens_details", {{"reasoning_tokens", n_thought}}},
                       {"total_tokens", result.prompt_tokens + result.answer_tokens}};
  response["timings"] = timings_json(result);
  if (request_.is_stored) {
    request_.messages.push_back(std::move(message));
    store_->put({.id = id_, .messages = to_text(request_.messages), .response = to_text(response)});
  }
  return response;
}

std::string ResponsesDialect::whole(const std::vector<WholeAnswer>& answers, const BatchResult& result) {
  const WholeAnswer& answer = answers.front();
  if (!answer.message.reasoning.empty()) add(Kind::kReasoning).text = answer.message.reasoning;
  if (!answer.message.content.empty()) add(Kind::kMessage).text = answer.message.content;
  for (const ChatToolCall& call : answer.message.tool_calls) {
    add(Kind::kCall, call.id, call.name).text = call.arguments;
  }
  cause_ = answer.end.cause;
  if (!items_.empty()) items_.back().is_cut = cause_ == AnswerCause::kLength;
  return to_text(finished(result));
}

std::string ResponsesDialect::event(const char* type, Json fields) {
  Json all = {{"type", type}, {"sequence_number", n_events_++}};
  all.update(fields);
  return "event: " + std::string(type) + "\ndata: " + to_text(all) + "\n\n";
}

std::string ResponsesDialect::item_event(const char* type, Json fields) {
  const Item& item = items_.back();
  fields["item_id"] = item.id;
  fields["output_index"] = items_.size() - 1;
  if (item.kind != Kind::kCall) fields["content_index"] = 0;
  return event(type, std::move(fields));
}

std::string ResponsesDialect::begin() {
  std::string text = event("response.created", {{"response", response_json("in_progress")}});
  return text += event("response.in_progress", {{"response", response_json("in_progress")}});
}

std::string ResponsesDialect::open(Kind kind, const ChatDelta& delta) {
  if (is_open_ && items_.back().kind == kind && items_.back().call == (kind == Kind::kCall ? delta.tool_call : -1)) {
    return "";
  }
  std::string text = close();
  const Item& item = kind == Kind::kCall ? add(kind, delta.id, delta.name, delta.tool_call) : add(kind);
  is_open_ = true;
  text += event("response.output_item.added", {{"output_index", items_.size() - 1}, {"item", item_json(item, false)}});
  if (kind != Kind::kCall) text += item_event("response.content_part.added", {{"part", part_json(item, "")}});
  return text;
}

std::string ResponsesDialect::close() {
  if (!is_open_) return "";
  is_open_ = false;
  const Item& item = items_.back();
  std::string text;
  if (item.kind == Kind::kCall) {
    text = item_event("response.function_call_arguments.done", {{"name", item.name}, {"arguments", item.text}});
  } else if (item.kind == Kind::kReasoning) {
    text = item_event("response.reasoning_text.done", {{"text", item.text}});
  } else {
    text = item_event("response.output_text.done", {{"text", item.text}, {"logprobs", Json::array()}});
  }
  if (item.kind != Kind::kCall)
    text += item_event("response.content_part.done", {{"part", part_json(item, item.text)}});
  return text +=
         event("response.output_item.done", {{"output_index", items_.size() - 1}, {"item", item_json(item, true)}});
}

std::string ResponsesDialect::delta(const AnswerDelta& answer) {
  const ChatDelta& delta = answer.delta;
  std::string text;
  const auto append = [&](Kind kind, const std::string& piece, const char* type, Json fields) {
    text += open(kind, delta);
    items_.back().text += piece;
    fields["delta"] = piece;
    if (!piece.empty()) text += item_event(type, std::move(fields));
  };
  if (!delta.reasoning.empty()) {
    append(Kind::kReasoning, delta.reasoning, "response.reasoning_text.delta", Json::object());
  }
  if (!delta.content.empty()) {
    append(Kind::kMessage, delta.content, "response.output_text.delta", {{"logprobs", Json::array()}});
  }
  if (delta.tool_call >= 0) {
    append(Kind::kCall, delta.arguments, "response.function_call_arguments.delta", Json::object());
  }
  return text;
}

std::string ResponsesDialect::finish(const AnswerEnd& end) {
  cause_ = end.cause;
  if (is_open_) items_.back().is_cut = cause_ == AnswerCause::kLength;
  return close();
}

std::string ResponsesDialect::end(const BatchResult& result) {
  const char* type = cause_ == AnswerCause::kLength ? "response.incomplete" : "response.completed";
  return event(type, {{"response", finished(result)}});
}

std::string ResponsesDialect::error(const ApiError& error) {
  const Json code = error.code.empty() ? "server_error" : error.code;
  Json response = response_json("failed");
  response["error"] = {{"code", code}, {"message", error.what()}};
  std::string text = event("error", {{"code", code}, {"message", error.what()}, {"param", nullptr}});
  return text += event("response.failed", {{"response", std::move(response)}});
}

}  // namespace winnow::server
