#include "server/dialects/openai_dialect.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string_view>
#include <utility>

#include "base/utf8.h"
#include "server/answer_json.h"
#include "winnow/version.h"

namespace winnow::server {
namespace {

const char* finish_reason(AnswerCause cause) {
  switch (cause) {
    case AnswerCause::kStop:
    case AnswerCause::kStopText:
      return "stop";
    case AnswerCause::kLength:
      return "length";
    case AnswerCause::kToolCalls:
      return "tool_calls";
    case AnswerCause::kError:
      break;
  }
  return "error";
}

Json delta_json(const ChatDelta& delta) {
  Json json = Json::object();
  if (!delta.reasoning.empty()) json["reasoning_content"] = delta.reasoning;
  if (delta.tool_call < 0) {
    if (delta.reasoning.empty() || !delta.content.empty()) json["content"] = delta.content;
    return json;
  }
  if (!delta.content.empty()) json["content"] = delta.content;
  Json call = {{"index", delta.tool_call}, {"function", {{"arguments", delta.arguments}}}};
  if (!delta.name.empty()) {
    call["id"] = delta.id;
    call["type"] = "function";
    call["function"]["name"] = delta.name;
  }
  json["tool_calls"] = Json::array({call});
  return json;
}

Json message_json(const ChatMessage& message) {
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

// Returns the mean log-probability of an answer's tokens.
double likelihood(const WholeAnswer& answer) {
  double sum = 0;
  for (const BatchToken& token : answer.tokens) sum += finite(token.log_probability);
  return answer.tokens.empty() ? 0 : sum / static_cast<double>(answer.tokens.size());
}

// Returns the n_returned likeliest of each n_sampled answers.
std::vector<const WholeAnswer*> best_of(const std::vector<WholeAnswer>& answers, int n_sampled, int n_returned) {
  std::vector<const WholeAnswer*> best;
  for (std::size_t begin = 0; begin < answers.size(); begin += static_cast<std::size_t>(n_sampled)) {
    std::vector<const WholeAnswer*> some;
    for (int i = 0; i < n_sampled; ++i) some.push_back(&answers[begin + static_cast<std::size_t>(i)]);
    if (n_returned < n_sampled) {
      std::stable_sort(some.begin(), some.end(),
                       [](const auto* a, const auto* b) { return likelihood(*a) > likelihood(*b); });
    }
    best.insert(best.end(), some.begin(), some.begin() + n_returned);
  }
  return best;
}

// Returns a token's text as a completion's "logprobs" name it. As OpenAI has it, tokens that are parts of characters
// are named by their bytes, so that each has a name of its own.
std::string token_name(const std::string& text) {
  if (!find_invalid_utf8(text)) return text;
  std::string name = "bytes:";
  for (const char byte : text) {
    char digits[8];
    std::snprintf(digits, sizeof(digits), "\\x%02x", static_cast<unsigned>(static_cast<unsigned char>(byte)));
    name += digits;
  }
  return name;
}

// Returns the offsets, in characters, at which the tokens of an echoed text begin in it. Some tokens are not in it (a
// begin token), or are written differently (a space that the tokenizer puts before the first word).
std::vector<std::size_t> offsets_in(const std::string& text, const std::vector<BatchToken>& tokens,
                                    const Model& model) {
  std::vector<std::size_t> offsets;
  std::size_t at = 0, offset = 0;
  const auto take = [&](std::string_view piece) {
    if (piece.empty() || !std::string_view(text).substr(at).starts_with(piece)) return false;
    offset += count_characters(piece);
    at += piece.size();
    return true;
  };
  for (const BatchToken& token : tokens) {
    offsets.push_back(offset);
    const std::string piece = model.token_text(token.token, true);
    if (take(piece) || !piece.starts_with(' ')) continue;
    take(std::string_view(piece).substr(1));
  }
  return offsets;
}

}  // namespace

OpenAiDialect::OpenAiDialect(Endpoint endpoint, std::string model_name)
    : endpoint_(endpoint),
      id_(random_id(endpoint == Endpoint::kChat ? "chatcmpl-" : "cmpl-")),
      created_(unix_seconds()),
      model_name_(std::move(model_name)) {}

ApiRequest OpenAiDialect::parse(Json body, const Model& model, const RequestDefaults& defaults) {
  ApiRequest request = parse_request(endpoint_, RequestBody(std::move(body)), model, defaults);
  model_ = &model;
  if (!request.model.empty()) model_name_ = request.model;
  n_answers_ = request.n_answers();
  n_sampled_ = request.batch.n_answers;
  n_returned_ = is_chat() ? n_sampled_ : request.n_returned;
  echoes_ = request.echoes;
  wants_probabilities_ = request.batch.n_probabilities >= 0 && request.returns_logprobs;
  wants_usage_ = request.wants_usage;
  wants_heads_ = request.wants_heads;
  return request;
}

std::string OpenAiDialect::echo_of(int answer) const {
  return echoes_.empty() ? "" : echoes_[static_cast<std::size_t>(answer / n_sampled_)];
}

Json OpenAiDialect::head(const char* kind) const {
  return {{"id", id_},
          {"object", kind},
          {"created", created_},
          {"model", model_name_},
          {"system_fingerprint", std::string("winnow-") + kVersion}};
}

Json OpenAiDialect::probabilities(const std::vector<BatchToken>& tokens,
                                  const std::vector<std::size_t>& offsets) const {
  if (is_chat()) {
    Json content = Json::array();
    const auto entry = [&](Token id, float log_probability) {
      const std::string text = model_->token_text(id, true);
      return Json{{"token", valid_utf8(text)}, {"logprob", finite(log_probability)}, {"bytes", bytes_json(text)}};
    };
    for (const BatchToken& token : tokens) {
      Json one = entry(token.token, token.log_probability);
      one["top_logprobs"] = Json::array();
      for (const TokenProbability& top : token.top) {
        one["top_logprobs"].push_back(entry(top.token, top.log_probability));
      }
      content.push_back(one);
    }
    return {{"content", content}};
  }
  Json all = {{"tokens", Json::array()},
              {"token_logprobs", Json::array()},
              {"top_logprobs", Json::array()},
              {"text_offset", offsets}};
  for (const BatchToken& token : tokens) {
    const bool is_first = std::isnan(token.log_probability);  // of a prompt, before which there is no token
    Json tops = Json::object();
    for (const TokenProbability& top : token.top) {
      // Of two tokens with one text, the likelier comes first and stays.
      tops.emplace(token_name(model_->token_text(top.token, true)), finite(top.log_probability));
    }
    all["tokens"].push_back(token_name(model_->token_text(token.token, true)));
    all["token_logprobs"].push_back(is_first ? Json(nullptr) : Json(finite(token.log_probability)));
    all["top_logprobs"].push_back(is_first ? Json(nullptr) : tops);
  }
  return all;
}

Json OpenAiDialect::probabilities(const WholeAnswer& answer) const {
  if (!wants_probabilities_) return nullptr;
  if (scores_.empty()) return probabilities(answer.tokens, answer.offsets);
  const std::string echo = echo_of(answer.end.answer);
  std::vector<BatchToken> tokens = scores_[static_cast<std::size_t>(answer.end.answer / n_sampled_)];
  std::vector<std::size_t> offsets = offsets_in(echo, tokens, *model_);
  tokens.insert(tokens.end(), answer.tokens.begin(), answer.tokens.end());
  const std::size_t n_echoed = count_characters(echo);
  for (const std::size_t offset : answer.offsets) offsets.push_back(n_echoed + offset);
  return probabilities(tokens, offsets);
}

void OpenAiDialect::take_scores(const PromptScores& scores) {
  scores_.resize(static_cast<std::size_t>(n_answers_ / n_sampled_));
  scores_[static_cast<std::size_t>(scores.prompt)] = scores.tokens;
}

Json OpenAiDialect::chunk(int answer, const Json& content, const Json& logprobs, const Json& reason) const {
  Json chunk = head(is_chat() ? "chat.completion.chunk" : "text_completion");
  chunk["choices"] = Json::array({{{"index", answer},
                                   {is_chat() ? "delta" : "text", content},
                                   {"finish_reason", reason},
                                   {"logprobs", logprobs}}});
  return chunk;
}

std::string OpenAiDialect::begin() {
  std::string text;
  for (int i = 0; is_chat() && i < n_answers_; ++i) {
    text += sse_text(chunk(i, {{"role", "assistant"}, {"content", ""}}, nullptr, nullptr));
  }
  for (int i = 0; !echoes_.empty() && i < n_answers_; ++i) text += sse_text(chunk(i, echo_of(i), nullptr, nullptr));
  return text;
}

std::string OpenAiDialect::delta(const AnswerDelta& delta) {
  const Json logprobs = delta.tokens.empty()
                            ? Json(nullptr)
                            : probabilities(delta.tokens, std::vector<std::size_t>(delta.tokens.size(), delta.offset));
  const Json content = is_chat() ? delta_json(delta.delta) : Json(delta.delta.content);
  return sse_text(chunk(delta.answer, content, logprobs, nullptr));
}

std::string OpenAiDialect::finish(const AnswerEnd& end) {
  return sse_text(chunk(end.answer, is_chat() ? Json::object() : Json(""), nullptr, finish_reason(end.cause)));
}

std::string OpenAiDialect::end(const BatchResult& result) {
  constexpr const char* kDone = "data: [DONE]\n\n";
  if (!wants_usage_) return kDone;
  Json chunk = head(is_chat() ? "chat.completion.chunk" : "text_completion");
  chunk["choices"] = Json::array();
  chunk["usage"] = usage_json(result);
  chunk["timings"] = timings(result);
  return sse_text(chunk) + kDone;
}

std::string OpenAiDialect::error(const ApiError& error) { return sse_text(error.body()); }

Json OpenAiDialect::timings(const BatchResult& result) const {
  Json json = timings_json(result);
  if (wants_heads_) json["kv"]["kept"] = result.cache.kept;  // [n_layer][n_kv_head]
  return json;
}

std::string OpenAiDialect::whole(const std::vector<WholeAnswer>& answers, const BatchResult& result) {
  Json whole = head(is_chat() ? "chat.completion" : "text_completion");
  whole["choices"] = Json::array();
  for (const WholeAnswer* best : best_of(answers, n_sampled_, n_returned_)) {
    const WholeAnswer& answer = *best;
    Json choice = {{"index", whole["choices"].size()},
                   {"finish_reason", finish_reason(answer.end.cause)},
                   {"logprobs", probabilities(answer)}};
    if (is_chat()) {
      choice["message"] = message_json(answer.message);
    } else {
      choice["text"] = echo_of(answer.end.answer) + answer.message.content;
    }
    whole["choices"].push_back(choice);
  }
  whole["usage"] = usage_json(result);
  whole["timings"] = timings(result);
  return to_text(whole);
}

}  // namespace winnow::server
