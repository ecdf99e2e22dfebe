#include "server/dialects/llama_dialect.h"

#include <algorithm>
#include <utility>

#include "base/utf8.h"
#include "server/answer_json.h"
#include "server/chat_prompt.h"
#include "server/infill.h"

namespace winnow::server {
namespace {

constexpr std::size_t kMostFiles = 256;

// Removes fields that would change the answer. Refuses them unless they have the value listed after the name.
void refuse_unsupported(Json& body, const Fields& fields) {
  const std::vector<std::pair<const char*, Json>> harmless = {{"post_sampling_probs", false},
                                                              {"image_data", Json::array()},
                                                              {"lora", Json::array()},
                                                              {"n_cache_reuse", 0},
                                                              {"multimodal_data", Json::array()}};
  for (const auto& [name, value] : harmless) {
    const Json given = take(body, name);
    if (!given.is_null() && given != value && !(value == 0 && given.is_number() && given < 0)) {
      fields.refuse(name, "is not supported by this server: leave it out");
    }
  }
}

std::string taken_text(Json& body, const char* name, const Fields& fields) {
  const Json json = take(body, name);
  if (!json.is_null() && !json.is_string()) fields.refuse(name, "must be a string");
  return json.is_null() ? "" : json.get<std::string>();
}

// Returns the tokens of a prompt to fill in the middle between two texts. Editors send as much text as they have, so
// what does not fit is left out, with room for the answer: "n_predict" tokens, but a quarter of the context at most.
std::vector<Token> infill_prompt(Json& body, const Fields& fields, const Model& model, std::int32_t n_ctx) {
  const std::int64_t most_of_answer = std::max(n_ctx / 4, 1);
  const std::int64_t n_answer = Fields(body).integer("n_predict", -2, INT32_MAX).value_or(-1);
  const auto most =
      static_cast<std::size_t>(n_ctx - (n_answer < 0 ? most_of_answer : std::min(n_answer, most_of_answer)));
  InfillText text;
  text.prefix = taken_text(body, "input_prefix", fields);
  text.suffix = taken_text(body, "input_suffix", fields);
  text.begun = taken_text(body, "prompt", fields);
  const Json files = take(body, "input_extra");
  if (!files.is_null() && !files.is_array()) fields.refuse("input_extra", "must be a list of objects");
  if (files.size() > kMostFiles) {
    fields.refuse("input_extra", "may have " + std::to_string(kMostFiles) + " entries at most");
  }
  fields.each("input_extra", files, [&](std::size_t /*i*/, const Fields& file) {
    text.files.emplace_back(file.text("filename").value_or("tmp"), file.text("text").value_or(""));
  });
  check_bytes(model, text.begun.size(), n_ctx, "prompt");
  shorten(model, most, text);
  return infill_tokens(model, text, most);
}

RequestBody translate(Json given) {
  RequestBody body;
  body.names = {{"logprobs", "n_probs"}};
  Json& to = body.fields;
  to = std::move(given);
  const Json nothing = Json::object();
  const Fields fields(nothing);
  refuse_unsupported(to, fields);
  for (const char* name : {"logprobs", "best_of", "echo", "suffix", "stream_options"}) to.erase(name);
  if (Json n = take(to, "n_cmpl"); !n.is_null()) {
    to["n"] = std::move(n);
    body.names["n"] = "n_cmpl";
  }
  if (const Json n = take(to, "n_probs"); !n.is_null() && n != 0) to["logprobs"] = n;
  if (to.contains("repeat_last_n") && to["repeat_last_n"] == -1) to["repeat_last_n"] = 1 << 16;  // the whole context
  if (to.contains("grammar") && to["grammar"] == "") to.erase("grammar");
  take_schema(body);
  return body;
}

}  // namespace

LlamaDialect::LlamaDialect(Kind kind, std::string model_name)
    : kind_(kind), id_(random_id("cmpl-")), model_name_(std::move(model_name)) {}

ApiRequest LlamaDialect::parse(Json body, const Model& model, const RequestDefaults& defaults) {
  RequestBody translated = translate(std::move(body));
  const Fields times(translated.fields);  // fields that editors send
  const auto predict_ms = times.integer("t_max_predict_ms", INT64_MIN, INT64_MAX);
  const bool wants_tokens = times.boolean("return_tokens").value_or(false);
  const auto n_indent = times.integer("n_indent", INT64_MIN, INT64_MAX);
  // llama-server has this field, and does not use it either.
  if (times.integer("t_max_prompt_ms", INT64_MIN, INT64_MAX).value_or(0) > 0) {
    translated.warnings.emplace_back("'t_max_prompt_ms' was ignored: it has no effect");
  }
  if (kind_ == Kind::kInfill) {
    const std::int32_t n_ctx = defaults.context_size(model);
    const Json nothing = Json::object();
    translated.fields["prompt"] = infill_prompt(translated.fields, Fields(nothing), model, n_ctx);
  }
  ApiRequest request = parse_request(Endpoint::kCompletion, translated, model, defaults);
  if (!request.more.empty() && request.is_streamed) {
    throw ApiError(400, "this route cannot stream several prompts: use /v1/completions, or send one prompt", "stream");
  }
  request.predict_s = static_cast<double>(std::max<std::int64_t>(predict_ms.value_or(0), 0)) / 1e3;
  request.n_indent = static_cast<int>(std::clamp<std::int64_t>(n_indent.value_or(0), 0, 1 << 20));
  model_ = &model;
  wants_probabilities_ = request.batch.n_probabilities >= 0;
  wants_tokens_ = wants_tokens;
  // The tokens come with their probabilities only. Those of several answers are counted apart.
  if (wants_tokens_ || request.n_answers() > 1)
    request.batch.n_probabilities = std::max(request.batch.n_probabilities, 0);
  const auto count = [&](const BatchRequest& one) {
    for (int i = 0; i < one.n_answers; ++i) n_prompt_tokens_.push_back(one.context.size() + one.prompt.size());
  };
  count(request.batch);
  for (BatchRequest& one : request.more) {
    one.n_probabilities = request.batch.n_probabilities;
    count(one);
  }
  n_tokens_.resize(n_prompt_tokens_.size());
  return request;
}

Json LlamaDialect::probabilities(const std::vector<BatchToken>& tokens) const {
  const auto entry = [&](Token id, float log_probability) {
    const std::string text = model_->token_text(id, true);
    return Json{
        {"id", id}, {"token", valid_utf8(text)}, {"bytes", bytes_json(text)}, {"logprob", finite(log_probability)}};
  };
  Json all = Json::array();
  for (const BatchToken& token : tokens) {
    Json one = entry(token.token, token.log_probability);
    one["top_logprobs"] = Json::array();
    for (const TokenProbability& top : token.top) one["top_logprobs"].push_back(entry(top.token, top.log_probability));
    all.push_back(std::move(one));
  }
  return all;
}

Json LlamaDialect::numbers(const std::vector<BatchToken>& tokens) const {
  Json all = Json::array();
  for (const BatchToken& token : tokens) {
    if (wants_tokens_) all.push_back(token.token);
  }
  return all;
}

Json LlamaDialect::last(const AnswerEnd& end, const BatchResult& result) const {
  const auto answer = static_cast<std::size_t>(end.answer);
  const int n_tokens = n_tokens_.size() == 1 ? result.answer_tokens : n_tokens_[answer];
  const char* type = end.cause == AnswerCause::kLength ? "limit" : end.cause == AnswerCause::kStopText ? "word" : "eos";
  return {{"index", end.answer},
          {"content", ""},
          {"tokens", Json::array()},
          {"id_slot", 0},
          {"stop", true},
          {"model", model_name_},
          {"tokens_predicted", n_tokens},
          {"tokens_evaluated", n_prompt_tokens_[answer]},
          {"tokens_cached", result.cached_tokens},
          {"truncated", false},
          {"stop_type", type},
          {"stopping_word", end.stop},
          {"timings", timings_json(result)}};
}

std::string LlamaDialect::whole(const std::vector<WholeAnswer>& answers, const BatchResult& result) {
  Json all = Json::array();
  for (const WholeAnswer& answer : answers) {
    n_tokens_[static_cast<std::size_t>(answer.end.answer)] = static_cast<int>(answer.tokens.size());
    Json one = last(answer.end, result);
    one["content"] = answer.message.content;
    one["tokens"] = numbers(answer.tokens);
    if (wants_probabilities_) one["completion_probabilities"] = probabilities(answer.tokens);
    all.push_back(std::move(one));
  }
  return to_text(all.size() == 1 ? all.front() : all);
}

std::string LlamaDialect::delta(const AnswerDelta& delta) {
  const auto answer = static_cast<std::size_t>(delta.answer);
  n_tokens_[answer] += n_tokens_.size() == 1 ? 1 : static_cast<int>(delta.tokens.size());
  Json chunk = {{"index", delta.answer},
                {"content", delta.delta.content},
                {"tokens", numbers(delta.tokens)},
                {"stop", false},
                {"id_slot", 0},
                {"tokens_predicted", n_tokens_[answer]},
                {"tokens_evaluated", n_prompt_tokens_[answer]}};
  if (wants_probabilities_) chunk["completion_probabilities"] = probabilities(delta.tokens);
  return sse_text(chunk);
}

std::string LlamaDialect::finish(const AnswerEnd& end) {
  ends_.push_back(end);
  return "";
}

std::string LlamaDialect::end(const BatchResult& result) {
  std::string text;
  for (const AnswerEnd& end : ends_) text += sse_text(last(end, result));
  return text;
}

std::string LlamaDialect::error(const ApiError& error) { return sse_text(error.body()); }

}  // namespace winnow::server
