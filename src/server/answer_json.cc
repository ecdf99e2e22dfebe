#include "server/answer_json.h"

#include <chrono>
#include <cmath>
#include <cstdio>
#include <random>
#include <string_view>

#include "base/utf8.h"
#include "winnow/version.h"

namespace winnow::server {
namespace {

std::string random_id(const char* prefix) {
  static thread_local std::mt19937_64 random{std::random_device{}()};
  char text[40];
  std::snprintf(text, sizeof(text), "%s-%016llx%08llx", prefix, static_cast<unsigned long long>(random()),
                static_cast<unsigned long long>(random() >> 32));
  return text;
}

Json bytes_json(const std::string& bytes) {
  Json list = Json::array();
  for (const char byte : bytes) list.push_back(static_cast<unsigned char>(byte));
  return list;
}

// JSON has no infinity: a token that cannot be is as good as impossible.
double finite(float log_probability) { return std::isfinite(log_probability) ? log_probability : -9999.0; }

double rate(double n, double seconds) { return seconds > 0 ? n / seconds : 0; }

Json delta_json(const ChatDelta& delta) {
  Json json = Json::object();
  if (!delta.reasoning.empty()) json["reasoning_content"] = delta.reasoning;
  if (!delta.content.empty()) json["content"] = delta.content;
  if (delta.tool_call < 0) return json;
  Json call = {{"index", delta.tool_call}, {"function", {{"arguments", delta.arguments}}}};
  if (!delta.name.empty()) {
    call["id"] = delta.id;
    call["type"] = "function";
    call["function"]["name"] = delta.name;
  }
  json["tool_calls"] = Json::array({call});
  return json;
}

}  // namespace

AnswerJson::AnswerJson(const ApiRequest& request, const Model& model, const std::string& model_name)
    : endpoint_(request.endpoint),
      wants_probabilities_(request.batch.n_probabilities >= 0),
      wants_heads_(request.wants_heads),
      model_(model),
      id_(random_id(request.endpoint == Endpoint::kChat ? "chatcmpl" : "cmpl")),
      model_name_(request.model.empty() ? model_name : request.model),
      created_(std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
                   .count()),
      choices_(static_cast<std::size_t>(request.batch.n_answers)),
      shown_(choices_.size()) {
  for (Choice& choice : choices_) {
    choice.probabilities = empty_probabilities();
    if (request.format != nullptr) choice.reader.emplace(request.format);
  }
}

Json AnswerJson::head(const char* kind) const {
  return {{"id", id_},
          {"object", kind},
          {"created", created_},
          {"model", model_name_},
          {"system_fingerprint", std::string("winnow-") + kVersion}};
}

Json AnswerJson::empty_probabilities() const {
  if (endpoint_ == Endpoint::kChat) return Json::array();
  return {{"tokens", Json::array()},
          {"token_logprobs", Json::array()},
          {"top_logprobs", Json::array()},
          {"text_offset", Json::array()}};
}

Json AnswerJson::probabilities(const TextPiece& piece, std::size_t text_offset) const {
  Json all = empty_probabilities();
  for (const BatchToken& token : piece.tokens) {
    const std::string bytes = model_.token_text(token.token, true);
    if (endpoint_ == Endpoint::kChat) {
      const auto entry = [&](Token id, float log_probability) {
        const std::string text = model_.token_text(id, true);
        return Json{{"token", valid_utf8(text)}, {"logprob", finite(log_probability)}, {"bytes", bytes_json(text)}};
      };
      Json one = entry(token.token, token.log_probability);
      one["top_logprobs"] = Json::array();
      for (const TokenProbability& top : token.top) {
        one["top_logprobs"].push_back(entry(top.token, top.log_probability));
      }
      all.push_back(one);
      continue;
    }
    Json tops = Json::object();
    for (const TokenProbability& top : token.top) {
      tops[valid_utf8(model_.token_text(top.token, true))] = finite(top.log_probability);
    }
    all["tokens"].push_back(valid_utf8(bytes));
    all["token_logprobs"].push_back(finite(token.log_probability));
    all["top_logprobs"].push_back(tops);
    all["text_offset"].push_back(text_offset);
  }
  return all;
}

void AnswerJson::append(Json& all, const Json& more) const {
  if (endpoint_ == Endpoint::kChat) {
    for (const Json& one : more) all.push_back(one);
    return;
  }
  for (const auto& [name, list] : more.items()) {
    for (const Json& one : list) all[name].push_back(one);
  }
}

std::vector<Json> AnswerJson::first_chunks() const {
  std::vector<Json> chunks;
  if (endpoint_ != Endpoint::kChat) return chunks;
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    Json chunk = head("chat.completion.chunk");
    chunk["choices"] = {
        {{"index", i}, {"delta", {{"role", "assistant"}, {"content", ""}}}, {"finish_reason", nullptr}}};
    chunks.push_back(chunk);
  }
  return chunks;
}

Json AnswerJson::delta_chunk(int answer, const Json& delta) const {
  Json chunk = head("chat.completion.chunk");
  chunk["choices"] =
      Json::array({{{"index", answer}, {"delta", delta}, {"finish_reason", nullptr}, {"logprobs", nullptr}}});
  return chunk;
}

std::vector<Json> AnswerJson::chunks(const TextPiece& piece) {
  Choice& answer = choices_[static_cast<std::size_t>(piece.answer)];
  std::vector<Json> made;
  if (answer.reader) {
    for (const ChatDelta& delta : answer.reader->add(piece.text)) {
      made.push_back(delta_chunk(piece.answer, delta_json(delta)));
    }
    return made;
  }
  const bool is_chat = endpoint_ == Endpoint::kChat;
  Json chunk = head(is_chat ? "chat.completion.chunk" : "text_completion");
  Json choice = {{"index", piece.answer}, {"finish_reason", nullptr}, {"logprobs", nullptr}};
  std::size_t& shown = shown_[static_cast<std::size_t>(piece.answer)];
  if (is_chat) {
    choice["delta"] = {{"content", piece.text}};
  } else {
    choice["text"] = piece.text;
  }
  if (wants_probabilities_ && !piece.tokens.empty()) {
    const Json list = probabilities(piece, shown);
    choice["logprobs"] = is_chat ? Json{{"content", list}} : list;
  }
  shown += piece.text.size();
  chunk["choices"] = Json::array({choice});
  made.push_back(std::move(chunk));
  return made;
}

std::vector<Json> AnswerJson::chunks(const AnswerEnd& end) {
  const bool is_chat = endpoint_ == Endpoint::kChat;
  std::vector<Json> made;
  Choice& answer = choices_[static_cast<std::size_t>(end.answer)];
  if (answer.reader) {
    for (const ChatDelta& delta : answer.reader->finish(end.reason == std::string_view("stop"))) {
      made.push_back(delta_chunk(end.answer, delta_json(delta)));
    }
  }
  Json chunk = head(is_chat ? "chat.completion.chunk" : "text_completion");
  Json choice = {{"index", end.answer}, {"finish_reason", reason_of(end)}, {"logprobs", nullptr}};
  if (is_chat) {
    choice["delta"] = Json::object();
  } else {
    choice["text"] = "";
  }
  chunk["choices"] = Json::array({choice});
  made.push_back(std::move(chunk));
  return made;
}

const char* AnswerJson::reason_of(const AnswerEnd& end) const {
  const Choice& choice = choices_[static_cast<std::size_t>(end.answer)];
  const bool has_calls = choice.reader && !choice.reader->message().tool_calls.empty();
  return has_calls && end.reason == std::string_view("stop") ? "tool_calls" : end.reason;
}

Json AnswerJson::message_json(const Choice& choice) const {
  if (!choice.reader) return {{"role", "assistant"}, {"content", choice.text}, {"refusal", nullptr}};
  const ChatMessage& message = choice.reader->message();
  Json json = {{"role", "assistant"}, {"content", message.content}, {"refusal", nullptr}};
  if (!message.reasoning.empty()) json["reasoning_content"] = message.reasoning;
  if (message.tool_calls.empty()) return json;
  if (message.content.empty()) json["content"] = nullptr;
  json["tool_calls"] = Json::array();
  for (const ChatToolCall& call : message.tool_calls) {
    json["tool_calls"].push_back(
        {{"id", call.id}, {"type", "function"}, {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
  }
  return json;
}

Json AnswerJson::timings(const BatchResult& result) const {
  Json json = timings_json(result);
  if (wants_heads_) json["kv"]["kept"] = result.cache.kept;  // [n_layer][n_kv_head]
  return json;
}

Json AnswerJson::usage_chunk(const BatchResult& result) const {
  Json chunk = head(endpoint_ == Endpoint::kChat ? "chat.completion.chunk" : "text_completion");
  chunk["choices"] = Json::array();
  chunk["usage"] = usage_json(result);
  chunk["timings"] = timings(result);
  return chunk;
}

void AnswerJson::add(const TextPiece& piece) {
  Choice& choice = choices_[static_cast<std::size_t>(piece.answer)];
  if (wants_probabilities_) append(choice.probabilities, probabilities(piece, choice.text.size()));
  choice.text += piece.text;
}

void AnswerJson::add(const AnswerEnd& end) {
  Choice& choice = choices_[static_cast<std::size_t>(end.answer)];
  // Read once, in the end: reading as it comes takes as often as there are tokens.
  if (choice.reader) {
    choice.reader->add(choice.text);
    choice.reader->finish(end.reason == std::string_view("stop"));
  }
  choice.reason = reason_of(end);
}

Json AnswerJson::whole(const BatchResult& result) const {
  const bool is_chat = endpoint_ == Endpoint::kChat;
  Json answer = head(is_chat ? "chat.completion" : "text_completion");
  answer["choices"] = Json::array();
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    Json choice = {{"index", i}, {"finish_reason", choices_[i].reason}, {"logprobs", nullptr}};
    if (is_chat) {
      choice["message"] = message_json(choices_[i]);
    } else {
      choice["text"] = choices_[i].text;
    }
    if (wants_probabilities_) {
      choice["logprobs"] = is_chat ? Json{{"content", choices_[i].probabilities}} : choices_[i].probabilities;
    }
    answer["choices"].push_back(choice);
  }
  answer["usage"] = usage_json(result);
  answer["timings"] = timings(result);
  return answer;
}

Json usage_json(const BatchResult& result) {
  return {{"prompt_tokens", result.prompt_tokens},
          {"completion_tokens", result.answer_tokens},
          {"total_tokens", result.prompt_tokens + result.answer_tokens},
          {"prompt_tokens_details", {{"cached_tokens", result.cached_tokens}}}};
}

Json timings_json(const BatchResult& result) {
  const int n_read = result.prompt_tokens - result.cached_tokens;
  const SessionStatistics& cache = result.cache;
  return {{"queue_ms", result.queue_s * 1e3},
          {"cache_n", result.cached_tokens},
          {"prompt_n", n_read},
          {"prompt_ms", result.prefill_s * 1e3},
          {"prompt_per_second", rate(n_read, result.prefill_s)},
          {"predicted_n", result.answer_tokens},
          {"predicted_ms", result.decode_s * 1e3},
          {"predicted_per_second", rate(result.answer_tokens, result.decode_s)},
          {"kv",
           {{"method", result.method},
            {"budget", result.budget.empty() ? Json(nullptr) : Json(result.budget)},
            {"entries_full", cache.entries_full},
            {"entries_kept", cache.entries_kept},
            {"bytes_full", cache.bytes_full},
            {"bytes_kept", cache.bytes_kept}}}};
}

}  // namespace winnow::server
