#include "server/api_request.h"

#include <algorithm>
#include <array>

#include "generate/schema_grammar.h"
#include "server/chat_fields.h"
#include "server/chat_prompt.h"
#include "server/fields.h"
#include "server/kv_fields.h"
#include "winnow/json_grammar.h"

namespace winnow::server {
namespace {

constexpr int kMostStops = 16;
constexpr std::size_t kMostStopBytes = 1024;
constexpr int kMostProbabilities = 20;

// Fields that would change the answer, and that nothing here honours.
void refuse_unsupported(const Fields& fields) {
  const auto refuse_unless = [&](const std::string& name, const auto& is_harmless) {
    const Json* json = fields.find(name);
    if (json != nullptr && !is_harmless(*json)) fields.refuse(name, "is not supported by this server: leave it out");
  };
  const auto is_empty = [](const Json& json) { return (json.is_array() || json.is_object()) && json.empty(); };
  const auto is_false = [](const Json& json) { return json == false; };
  for (const char* name : {"functions", "logit_bias", "web_search_options"}) refuse_unless(name, is_empty);
  refuse_unless("echo", is_false);
  refuse_unless("function_call", [](const Json& json) { return json == "none" || json == "auto"; });
  refuse_unless("modalities", [](const Json& json) { return json == Json::array({"text"}); });
  refuse_unless("audio", [](const Json&) { return false; });
  refuse_unless("suffix", [](const Json& json) { return json == ""; });
  refuse_unless("best_of", [](const Json& json) { return json == 1; });
}

SamplingOptions parse_sampling(const Fields& fields, SamplingOptions sampling) {
  const auto take = [&](const std::string& name, float& target, double lowest, double highest) {
    if (const auto value = fields.number(name, lowest, highest)) target = static_cast<float>(*value);
  };
  take("temperature", sampling.temperature, 0, 100);
  take("top_p", sampling.top_p, 0, 1);
  take("min_p", sampling.min_p, 0, 1);
  take("frequency_penalty", sampling.frequency_penalty, -100, 100);
  take("presence_penalty", sampling.presence_penalty, -100, 100);
  take("repeat_penalty", sampling.repeat_penalty, 0.01, 100);
  if (const auto value = fields.integer("top_k", -1, 1 << 20)) sampling.top_k = static_cast<int>(*value);
  if (const auto value = fields.integer("repeat_last_n", 0, 1 << 16)) sampling.repeat_last_n = static_cast<int>(*value);
  if (const auto value = fields.integer("seed", INT64_MIN, INT64_MAX)) {
    // The last number asks for a random seed; one that was given is not random.
    sampling.seed = static_cast<std::uint32_t>(static_cast<std::uint64_t>(*value) % 0xFFFFFFFFU);
  }
  return sampling;
}

std::vector<std::string> parse_stops(const Fields& fields) {
  const Json* json = fields.find("stop");
  if (json == nullptr) return {};
  const Json list = json->is_array() ? *json : Json::array({*json});
  if (list.size() > kMostStops) fields.refuse("stop", "may have " + std::to_string(kMostStops) + " entries at most");
  std::vector<std::string> stops;
  for (const Json& stop : list) {
    if (!stop.is_string() || stop.get_ref<const std::string&>().size() > kMostStopBytes) {
      fields.refuse("stop",
                    "must be a string or a list of strings, of " + std::to_string(kMostStopBytes) + " bytes at most");
    }
    if (stop != "") stops.push_back(stop);
  }
  return stops;
}

std::string parse_grammar(const Fields& fields, const std::string& text) {
  const std::string grammar = fields.text("grammar").value_or("");
  const std::optional<Json> format = fields.object("response_format");
  if (!format) return grammar;
  if (!grammar.empty()) fields.refuse("grammar", "and 'response_format' exclude each other");
  const Fields inner(*format, "response_format.");
  const std::string type = inner.text("type").value_or("");
  if (type == "text") return "";
  if (type == "json_object") return json_object_grammar();
  if (type != "json_schema") inner.refuse("type", "must be text, json_object or json_schema");
  const std::optional<Json> schema = inner.object("json_schema");
  if (!schema || !schema->contains("schema")) inner.refuse("json_schema", "must be an object with a 'schema'");
  try {
    return schema_grammar(parse_ordered_field(text, "response_format")["json_schema"]["schema"]);
  } catch (const Error& error) {
    throw ApiError(400, error.what(), "response_format");
  }
}

PromptTokens parse_prompt(const Fields& fields, const Model& model, const std::string& document, std::int32_t n_ctx) {
  const Json* json = fields.find("prompt");
  if (json == nullptr) fields.refuse("prompt", "is missing");
  const Json& prompt = json->is_array() && json->size() == 1 && !(*json)[0].is_number() ? (*json)[0] : *json;
  check_bytes(model, document.size() + (prompt.is_string() ? prompt.get_ref<const std::string&>().size() : 0), n_ctx);
  if (prompt.is_string()) return tokenize(model, {document, prompt.get<std::string>()});
  const auto is_token = [](const Json& token) { return token.is_number_integer() && token >= 0 && token <= INT32_MAX; };
  if (!prompt.is_array() || prompt.empty() || !std::all_of(prompt.begin(), prompt.end(), is_token)) {
    fields.refuse("prompt", "must be one string or one list of tokens");
  }
  PromptTokens parts;
  if (!document.empty()) parts.context = model.tokenize(document, true, true);
  parts.question = prompt.get<std::vector<Token>>();
  return parts;
}

int parse_probabilities(const Fields& fields, Endpoint endpoint) {
  if (endpoint == Endpoint::kCompletion) {
    return static_cast<int>(fields.integer("logprobs", 0, kMostProbabilities).value_or(-1));
  }
  const auto n = fields.integer("top_logprobs", 0, kMostProbabilities);
  if (!fields.boolean("logprobs").value_or(false)) {
    if (n) fields.refuse("top_logprobs", "needs 'logprobs': true");
    return -1;
  }
  return static_cast<int>(n.value_or(0));
}

}  // namespace

ApiRequest parse_request(Endpoint endpoint, const std::string& text, const Model& model,
                         const RequestDefaults& defaults) {
  const Json body = parse_body(text);
  const Fields fields(body);
  refuse_unsupported(fields);

  ApiRequest request{.endpoint = endpoint};
  request.model = fields.text("model").value_or("");
  request.is_streamed = fields.boolean("stream").value_or(false);
  if (const std::optional<Json> options = fields.object("stream_options")) {
    if (!request.is_streamed) fields.refuse("stream_options", "needs 'stream': true");
    request.wants_usage = Fields(*options, "stream_options.").boolean("include_usage").value_or(false);
  }
  request.stops = parse_stops(fields);

  BatchRequest& batch = request.batch;
  batch.sampling = parse_sampling(fields, defaults.sampling);
  if (std::string grammar = parse_grammar(fields, text); !grammar.empty()) batch.sampling.grammar = std::move(grammar);
  batch.n_probabilities = parse_probabilities(fields, endpoint);
  batch.n_answers = static_cast<int>(fields.integer("n", 1, defaults.n_parallel).value_or(1));
  batch.ignore_end = fields.boolean("ignore_eos").value_or(false);
  batch.max_tokens = defaults.max_tokens;
  for (const char* name : {"max_tokens", "max_completion_tokens"}) {
    if (const auto n = fields.integer(name, 1, INT32_MAX)) batch.max_tokens = static_cast<std::int32_t>(*n);
  }

  const KvFields kv = parse_kv(fields);
  request.wants_heads = kv.wants_heads;
  const std::int32_t n_ctx = defaults.session.n_ctx > 0 ? defaults.session.n_ctx : model.info().n_ctx_train;
  PromptTokens parts =
      endpoint == Endpoint::kChat
          ? chat_tokens(model, parse_chat(fields, text, !batch.sampling.grammar.empty()), kv.document, n_ctx, request)
          : parse_prompt(fields, model, kv.document.value_or(""), n_ctx);
  if (request.format != nullptr && request.is_streamed && batch.n_probabilities >= 0) {
    fields.refuse("logprobs", "cannot be had in a stream of tool calls or thoughts: leave out one of the three");
  }
  apply_kv(kv, defaults, std::move(parts), batch);
  return request;
}

}  // namespace winnow::server
