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

// Returns the tokens of a prompt to fill in the middle between two texts.
std::vector<Token> infill_prompt(Json& body, const Fields& fields, const Model& model, std::int32_t n_ctx) {
  InfillText text;
  text.prefix = taken_text(body, "input_prefix", fields);
  text.suffix = taken_text(body, "input_suffix", fields);
  text.begun = taken_text(body, "prompt", fields);
  const Json files = take(body, "input_extra");
  if (!files.is_null() && !files.is_array()) fields.refuse("input_extra", "must be a list of objects");
  if (files.size() > kMostFiles) {
    fields.refuse("input_extra", "may have " + std::to_string(kMostFiles) + " entries at most");
  }
  for (const Json& file : files) {
    if (!file.is_object()) fields.refuse("input_extra", "must be a list of objects");
    const Fields inner = fields.inner("input_extra", text.files.size(), file);
    text.files.emplace_back(inner.text("filename").value_or("tmp"), inner.text("text").value_or(""));
  }
  check_bytes(model, text.n_bytes(), n_ctx);
  return infill_tokens(model, text);
}

RequestBody translate(Json given) {
  RequestBody body;
  body.names = {{"logprobs", "n_probs"}};
  Json& to = body.fields;
  to = std::move(given);
  const Json nothing = Json::object();
  const Fields fields(nothing);
  refuse_unsupported(to, fields);
  for (const char* name : {"n", "logprobs", "best_of", "echo", "suffix", "stream_options"}) {
    to.erase(name);
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
  n_prompt_tokens_ = request.n_prompt_tokens();
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

Json LlamaDialect::last(const AnswerEnd& end, const BatchResult& result) const {
  const char* type = end.cause == AnswerCause::kLength ? "limit" : end.cause == AnswerCause::kStopText ? "word" : "eos";
  return {{"index", end.answer},
          {"content", ""},
          {"tokens", Json::array()},
          {"id_slot", 0},
          {"stop", true},
          {"model", model_name_},
          {"tokens_predicted", result.answer_tokens},
          {"tokens_evaluated", result.prompt_tokens},
          {"tokens_cached", result.cached_tokens},
          {"truncated", false},
          {"stop_type", type},
          {"stopping_word", end.stop},
          {"timings", timings_json(result)}};
}

std::string LlamaDialect::whole(const std::vector<WholeAnswer>& answers, const BatchResult& result) {
  Json all = Json::array();
  for (const WholeAnswer& answer : answers) {
    Json one = last(answer.end, result);
    one["content"] = answer.message.content;
    if (wants_probabilities_) one["completion_probabilities"] = probabilities(answer.tokens);
    all.push_back(std::move(one));
  }
  return to_text(all.size() == 1 ? all.front() : all);
}

std::string LlamaDialect::delta(const AnswerDelta& delta) {
  ++n_deltas_;
  Json chunk = {{"index", delta.answer},
                {"content", delta.delta.content},
                {"tokens", Json::array()},
                {"stop", false},
                {"id_slot", 0},
                {"tokens_predicted", n_deltas_},
                {"tokens_evaluated", n_prompt_tokens_}};
  if (wants_probabilities_) chunk["completion_probabilities"] = probabilities(delta.tokens);
  return sse_text(chunk);
}

std::string LlamaDialect::finish(const AnswerEnd& end) {
  end_ = end;
  return "";
}

std::string LlamaDialect::end(const BatchResult& result) { return sse_text(last(end_, result)); }

std::string LlamaDialect::error(const ApiError& error) { return sse_text(error.body()); }

}  // namespace winnow::server
