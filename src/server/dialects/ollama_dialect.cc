#include "server/dialects/ollama_dialect.h"

#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <ctime>

#include "base/utf8.h"
#include "server/answer_json.h"
#include "server/dialects/ollama_request.h"

namespace winnow::server {
namespace {

std::string time_text() {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto us = std::chrono::duration_cast<std::chrono::microseconds>(now.time_since_epoch()).count() % 1'000'000;
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  std::array<char, 40> date{}, text{};
  std::strftime(date.data(), date.size(), "%Y-%m-%dT%H:%M:%S", &parts);
  std::snprintf(text.data(), text.size(), "%.20s.%06dZ", date.data(), static_cast<int>(us));
  return text.data();
}

std::int64_t nanoseconds(double seconds) { return std::llround(seconds * 1e9); }

Json calls_json(const std::vector<ChatToolCall>& calls) {
  Json list = Json::array();
  for (const ChatToolCall& call : calls) {
    list.push_back({{"function", {{"name", call.name}, {"arguments", arguments_json(call.arguments)}}}});
  }
  return list;
}

std::string line_text(const Json& json) { return to_text(json) + "\n"; }

// Returns the number of parameters as ollama writes it: "134.5M".
std::string size_text(std::uint64_t n_parameters) {
  std::array<char, 32> text{};
  const bool is_large = n_parameters >= 1'000'000'000;
  std::snprintf(text.data(), text.size(), "%.1f%c", static_cast<double>(n_parameters) / (is_large ? 1e9 : 1e6),
                is_large ? 'B' : 'M');
  return text.data();
}

Json details(const ModelInfo& info) {
  std::string type = info.file_type;
  for (char& c : type) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return {{"parent_model", ""},
          {"format", "gguf"},
          {"family", info.architecture},
          {"families", {info.architecture}},
          {"parameter_size", size_text(info.n_parameters)},
          {"quantization_level", type}};
}

Json model_entry(const Model& model, const std::string& name) {
  const ModelInfo& info = model.info();
  std::array<char, 20> digest{};
  std::snprintf(digest.data(), digest.size(), "%016llx", static_cast<unsigned long long>(info.fingerprint));
  return {{"name", ollama_name(name)},
          {"model", ollama_name(name)},
          {"size", info.bytes},
          {"digest", std::string(48, '0') + digest.data()},
          {"details", details(info)}};
}

// Returns the model's capabilities: thinking if enable_thinking changes the prompt, tools if the template takes them.
std::vector<std::string> capabilities(const Model& model) {
  std::vector<std::string> all = {"completion"};
  if (!model.has_chat_template()) return all;
  const std::vector<ChatMessage> messages = {{.role = "user", .content = "a"}};
  try {
    ChatOptions options;
    const std::string with = model.apply_chat_template(messages, options).text;
    options.enable_thinking = false;
    if (model.apply_chat_template(messages, options).text != with) all.push_back("thinking");
    options.tools = {{.name = "f", .description = "", .parameters = ""}};
    model.apply_chat_template(messages, options);
    all.push_back("tools");
  } catch (const Error&) {
    // The template takes no tools.
  }
  return all;
}

}  // namespace

Json ollama_error(const ApiError& error) { return {{"error", error.what()}}; }

std::string ollama_name(const std::string& name) {
  return name.find(':') == std::string::npos ? name + ":latest" : name;
}

Json ollama_tags(const Model& model, const std::string& name) {
  static const std::string kStart = time_text();
  Json entry = model_entry(model, name);
  entry["modified_at"] = kStart;
  return {{"models", Json::array({entry})}};
}

Json ollama_running(const Model& model, const std::string& name) {
  Json entry = model_entry(model, name);
  entry["size_vram"] = 0;
  entry["expires_at"] = "9999-12-31T23:59:59Z";
  entry["context_length"] = model.info().n_ctx_train;
  return {{"models", Json::array({entry})}};
}

Json ollama_show(const Model& model) {
  const ModelInfo& info = model.info();
  const std::string prefix = info.architecture + ".";
  return {{"modelfile", ""},
          {"parameters", ""},
          {"template", ""},
          {"details", details(info)},
          {"model_info",
           {{"general.architecture", info.architecture},
            {"general.basename", info.name},
            {"general.parameter_count", info.n_parameters},
            {prefix + "context_length", info.n_ctx_train},
            {prefix + "embedding_length", info.n_embd},
            {prefix + "block_count", info.n_layer()}}},
          {"capabilities", capabilities(model)}};
}

OllamaDialect::OllamaDialect(Kind kind, std::string model_name)
    : kind_(kind), id_(random_id("ollama-")), model_name_(ollama_name(model_name)) {}

ApiRequest OllamaDialect::parse(Json body, const Model& model, const RequestDefaults& defaults) {
  OllamaGenerate translated{.endpoint = Endpoint::kChat, .body = {}};
  if (kind_ == Kind::kChat) {
    translated.body = translate_ollama_chat(body);
  } else {
    translated = translate_ollama_generate(body);
  }
  ApiRequest request = parse_request(translated.endpoint, translated.body, model, defaults);
  if (!request.model.empty()) model_name_ = request.model;
  model_ = &model;
  wants_probabilities_ = request.batch.n_probabilities >= 0;
  return request;
}

Json OllamaDialect::probabilities(const std::vector<BatchToken>& tokens) const {
  const auto entry = [&](Token id, float log_probability) {
    const std::string text = model_->token_text(id, true);
    return Json{{"token", valid_utf8(text)}, {"logprob", finite(log_probability)}, {"bytes", bytes_json(text)}};
  };
  Json all = Json::array();
  for (const BatchToken& token : tokens) {
    Json one = entry(token.token, token.log_probability);
    for (const TokenProbability& top : token.top) one["top_logprobs"].push_back(entry(top.token, top.log_probability));
    all.push_back(std::move(one));
  }
  return all;
}

Json OllamaDialect::head() const { return {{"model", model_name_}, {"created_at", time_text()}}; }

Json OllamaDialect::line(const std::string& content, const std::string& thoughts) const {
  Json line = head();
  line["done"] = false;
  if (kind_ == Kind::kChat) {
    line["message"] = {{"role", "assistant"}, {"content", content}};
  } else {
    line["response"] = content;
  }
  if (!thoughts.empty()) (kind_ == Kind::kChat ? line["message"] : line)["thinking"] = thoughts;
  return line;
}

Json OllamaDialect::last_line(Json line, AnswerCause cause, const BatchResult& result) const {
  line["done"] = true;
  line["done_reason"] = cause == AnswerCause::kLength ? "length" : "stop";
  line["total_duration"] = nanoseconds(result.queue_s + result.prefill_s + result.decode_s);
  line["load_duration"] = 0;
  line["prompt_eval_count"] = result.prompt_tokens;
  line["prompt_eval_duration"] = nanoseconds(result.prefill_s);
  line["eval_count"] = result.answer_tokens;
  line["eval_duration"] = nanoseconds(result.decode_s);
  line["timings"] = timings_json(result);
  return line;
}

Json OllamaDialect::nothing_said(const char* done_reason) const {
  Json all = line("", "");
  all["done"] = true;
  all["done_reason"] = done_reason;
  return all;
}

std::string OllamaDialect::whole(const std::vector<WholeAnswer>& answers, const BatchResult& result) {
  const WholeAnswer& answer = answers.front();
  Json all = line(answer.message.content, answer.message.reasoning);
  if (!answer.message.tool_calls.empty()) all["message"]["tool_calls"] = calls_json(answer.message.tool_calls);
  if (wants_probabilities_) all["logprobs"] = probabilities(answer.tokens);
  return to_text(last_line(std::move(all), answer.end.cause, result));
}

std::string OllamaDialect::delta(const AnswerDelta& answer) {
  const ChatDelta& delta = answer.delta;
  if (delta.tool_call >= 0) {
    calls_.resize(std::max(calls_.size(), static_cast<std::size_t>(delta.tool_call) + 1));
    ChatToolCall& call = calls_[static_cast<std::size_t>(delta.tool_call)];
    call.name += delta.name;
    call.arguments += delta.arguments;
  }
  if (delta.content.empty() && delta.reasoning.empty() && answer.tokens.empty()) return "";
  Json made = line(delta.content, delta.reasoning);
  if (!answer.tokens.empty() && wants_probabilities_) made["logprobs"] = probabilities(answer.tokens);
  return line_text(made);
}

std::string OllamaDialect::finish(const AnswerEnd& end) {
  cause_ = end.cause;
  if (calls_.empty()) return "";
  Json all = line("", "");
  all["message"]["tool_calls"] = calls_json(calls_);
  return line_text(all);
}

std::string OllamaDialect::end(const BatchResult& result) { return line_text(last_line(line("", ""), cause_, result)); }

std::string OllamaDialect::error(const ApiError& error) { return line_text(ollama_error(error)); }

}  // namespace winnow::server
