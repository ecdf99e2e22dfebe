#include "server/api_request.h"

#include <algorithm>
#include <array>
#include <utility>

#include "schema/schema_grammar.h"
#include "server/body_json.h"
#include "server/chat_fields.h"
#include "server/chat_prompt.h"
#include "server/completion_prompts.h"
#include "server/fields.h"
#include "server/kv_fields.h"
#include "server/sampling_fields.h"
#include "winnow/json_grammar.h"

namespace winnow::server {
namespace {

constexpr int kMostStops = 16;
constexpr std::size_t kMostStopBytes = 1024;
constexpr int kMostProbabilities = 20;
constexpr std::size_t kMostSchemaNames = 50'000;
constexpr std::size_t kMostSchemaValues = 100'000;

// Refuses fields that would change the answer and are not supported.
void refuse_unsupported(const Fields& fields, Endpoint endpoint) {
  const auto refuse_unless = [&](const std::string& name, const auto& is_harmless) {
    const Json* json = fields.find(name);
    if (json != nullptr && !is_harmless(*json)) fields.refuse(name, "is not supported by this server: leave it out");
  };
  const auto is_empty = [](const Json& json) { return (json.is_array() || json.is_object()) && json.empty(); };
  for (const char* name : {"functions", "web_search_options"}) refuse_unless(name, is_empty);
  refuse_unless("function_call", [](const Json& json) { return json == "none" || json == "auto"; });
  refuse_unless("modalities", [](const Json& json) { return json == Json::array({"text"}); });
  refuse_unless("audio", [](const Json&) { return false; });
  // Other servers constrain the form of an answer by these.
  for (const char* name : {"guided_regex", "guided_choice", "guided_grammar", "regex", "ebnf", "structural_tag"}) {
    refuse_unless(name, is_empty);
  }
  refuse_unless("structured_outputs", [](const Json& json) {
    return json.is_object() && (json.empty() || (json.size() == 1 && json.contains("json")));
  });
  if (endpoint == Endpoint::kCompletion) return;
  refuse_unless("echo", [](const Json& json) { return json == false; });
  refuse_unless("suffix", [](const Json& json) { return json == ""; });
  refuse_unless("best_of", [](const Json& json) { return json == 1; });
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
                    "must be a string or a list of strings, each at most " + std::to_string(kMostStopBytes) + " bytes");
    }
    if (stop != "") stops.push_back(stop);
  }
  return stops;
}

void check_size(const Json& schema, const Fields& fields) {
  const JsonSize size = size_of(schema);
  const auto refuse_more_than = [&](std::size_t n, std::size_t most, const std::string& what) {
    if (n <= most) return;
    fields.refuse("response_format", "has more than " + std::to_string(most) + " " + what + ": shorten it");
  };
  refuse_more_than(size.n_names, kMostSchemaNames, "names");
  refuse_more_than(size.n_values, kMostSchemaValues, "values");
}

std::string parse_grammar(const Fields& fields, std::vector<std::string>& warnings) {
  const std::string grammar = fields.text("grammar").value_or("");
  const Json* format = fields.object("response_format");
  if (format == nullptr) return grammar;
  if (!grammar.empty()) {
    fields.refuse("grammar", "and '" + fields.path("response_format") + "' exclude each other: leave one out");
  }
  const Fields inner = fields.inner("response_format", *format);
  const std::string type = inner.text("type").value_or("");
  if (type == "text") return "";
  if (type == "json_object") return json_object_grammar();  // with a schema it is a json_schema by now
  if (type != "json_schema") inner.refuse("type", "must be text, json_object or json_schema");
  const Json* named = inner.object("json_schema");
  if (named == nullptr || !named->contains("schema")) inner.refuse("json_schema", "must be an object with a 'schema'");
  const bool is_strict = inner.inner("json_schema", *named).boolean("strict").value_or(true);
  const Json& schema = named->at("schema");
  check_size(schema, fields);
  try {
    return schema_grammar(schema, &warnings, is_strict ? SchemaRules::Use::kPromise : SchemaRules::Use::kAdvice);
  } catch (const Error& error) {
    throw ApiError(400, error.what(), fields.path("response_format"));
  }
}

// Applies "best_of": samples that many answers, of which the "n" with the highest likelihood per token are returned.
void take_best_of(const Fields& fields, const RequestDefaults& defaults, ApiRequest& request) {
  BatchRequest& batch = request.batch;
  request.n_returned = batch.n_answers;
  const auto best_of = fields.integer("best_of", 1, defaults.n_parallel);
  if (!best_of || *best_of == batch.n_answers) return;
  if (*best_of < batch.n_answers) fields.refuse("best_of", "must not be less than 'n'");
  if (request.is_streamed) fields.refuse("best_of", "cannot be streamed: the best answers are only known at the end");
  request.returns_logprobs = batch.n_probabilities >= 0;
  batch.n_answers = static_cast<int>(*best_of);
  batch.n_probabilities = std::max(batch.n_probabilities, 0);
}

// With 'echo' and 'logprobs' the prompt's tokens get theirs, too. lm-eval computes likelihoods from these.
void score_echoes(const Fields& fields, ApiRequest& request) {
  BatchRequest& batch = request.batch;
  if (request.echoes.empty() || batch.n_probabilities < 0) return;
  if (request.is_streamed) {
    fields.refuse("echo", "cannot be streamed with 'logprobs': leave out 'echo', 'stream' or 'logprobs'");
  }
  batch.n_prompt_probabilities = batch.n_probabilities;
  // Clients count on a token of the answer where they have asked for one.
  if (batch.max_tokens == 1) batch.ignore_end = true;
}

int parse_probabilities(const Fields& fields, Endpoint endpoint) {
  if (endpoint == Endpoint::kCompletion) {
    return static_cast<int>(fields.integer("logprobs", 0, kMostProbabilities).value_or(-1));
  }
  const auto n = fields.integer("top_logprobs", 0, kMostProbabilities);
  if (!fields.boolean("logprobs").value_or(false)) {
    if (n.value_or(0) > 0) fields.refuse("top_logprobs", "needs 'logprobs': true");
    return -1;
  }
  return static_cast<int>(n.value_or(0));
}

}  // namespace

namespace {

// A place where clients put a JSON Schema: a field, and the pointer from it to the schema.
struct SchemaPlace {
  const char* field;
  const char* inner;  // null: the field is the schema
};
constexpr std::array<SchemaPlace, 6> kSchemaPlaces = {{
    {"response_format", "/json_schema/schema"},  // OpenAI
    {"response_format", "/schema"},              // llama-server, Together, llama-cpp-python
    {"json_schema", nullptr},                    // llama-server
    {"guided_json", nullptr},                    // vLLM
    {"structured_outputs", "/json"},             // vLLM
    {"extra_body", "/guided_json"},              // vLLM's, of clients that do not unpack it
}};

std::string tool_path(std::size_t i) { return "tools[" + std::to_string(i) + "]"; }

}  // namespace

void take_schema(RequestBody& body) {
  const Fields fields(body.fields);
  const SchemaPlace* found = nullptr;
  const Json* schema = nullptr;
  for (const SchemaPlace& place : kSchemaPlaces) {
    const Json* field = fields.find(place.field);
    if (field == nullptr) continue;
    const Json* given = field;
    if (place.inner != nullptr) {
      const Json::json_pointer inner(place.inner);
      if (!field->is_object() || !field->contains(inner)) continue;
      given = &field->at(inner);
    }
    if (given->is_null() || (place.inner == nullptr && *given == Json::object())) continue;
    std::string name = place.field + std::string(place.inner == nullptr ? "" : place.inner);
    std::replace(name.begin(), name.end(), '/', '.');
    if (!given->is_object()) fields.refuse(name, "must be a JSON schema, given as an object");
    if (found != nullptr) {
      fields.refuse(name, "and '" + std::string(found->field) + "' exclude each other: leave one out");
    }
    found = &place;
    schema = given;
  }
  const bool is_openais = found == &kSchemaPlaces.front();
  if (found == nullptr || is_openais) return;
  if (const Json* format = fields.find("response_format"); format != nullptr && format->is_object()) {
    const Json type = format->value("type", Json());
    if (type != "json_object" && type != "json_schema" && type != "text") return;  // parse_grammar refuses it
  }
  Json format = {{"type", "json_schema"}, {"json_schema", {{"schema", *schema}}}};
  body.fields["response_format"] = std::move(format);
  body.names["response_format"] = found->field;
}

std::int32_t RequestDefaults::context_size(const Model& model) const {
  return session.n_ctx > 0 ? session.n_ctx : model.info().n_ctx_train;
}

RequestBody::RequestBody(Json body) : fields(std::move(body)) { take_schema(*this); }

void RequestBody::add_tool(std::size_t i, Json function) {
  Json& tools = fields["tools"];
  names[tool_path(tools.size())] = tool_path(i);
  tools.push_back({{"type", "function"}, {"function", std::move(function)}});
}

void RequestBody::keep_tools(const std::function<bool(const Json& name)>& is_kept) {
  Json kept = Json::array();
  for (std::size_t i = 0; i < fields["tools"].size(); ++i) {
    Json& tool = fields["tools"][i];
    if (!is_kept(tool["function"].value("name", Json()))) continue;
    names[tool_path(kept.size())] = names[tool_path(i)];
    kept.push_back(std::move(tool));
  }
  fields["tools"] = std::move(kept);
}

ApiRequest parse_request(Endpoint endpoint, const RequestBody& body, const Model& model,
                         const RequestDefaults& defaults) {
  const Fields fields(body.fields, "", &body.names);
  refuse_unsupported(fields, endpoint);

  ApiRequest request{.endpoint = endpoint};
  request.prompt_field = fields.path(endpoint == Endpoint::kChat ? "messages" : "prompt");
  request.warnings = body.warnings;
  request.model = fields.text("model").value_or("");
  request.is_streamed = fields.boolean("stream").value_or(false);
  if (const Json* options = fields.object("stream_options")) {
    if (!request.is_streamed) fields.refuse("stream_options", "needs 'stream': true");
    request.wants_usage = fields.inner("stream_options", *options).boolean("include_usage").value_or(false);
  }
  request.stops = parse_stops(fields);
  request.n_own_stops = request.stops.size();

  BatchRequest& batch = request.batch;
  batch.sampling = parse_sampling(fields, model, defaults.sampling, request.warnings);
  if (std::string grammar = parse_grammar(fields, request.warnings); !grammar.empty()) {
    batch.sampling.grammar = std::move(grammar);
  }
  batch.n_probabilities = parse_probabilities(fields, endpoint);
  batch.n_answers = static_cast<int>(fields.integer("n", 1, defaults.n_parallel).value_or(1));
  batch.ignore_end = fields.boolean("ignore_eos").value_or(false);
  batch.max_tokens = defaults.max_tokens;
  for (const char* name : {"n_predict", "max_tokens", "max_completion_tokens"}) {
    const auto n = fields.integer(name, -2, INT32_MAX);
    if (!n) continue;
    batch.has_answer = *n != 0;
    // llama-server's -1 and -2 mean as many tokens as the context has room for.
    batch.max_tokens = *n < 0 ? INT32_MAX : std::max(static_cast<std::int32_t>(*n), 1);
  }

  const KvFields kv = parse_kv(fields);
  request.wants_heads = kv.wants_heads;
  const std::int32_t n_ctx = defaults.context_size(model);
  if (endpoint == Endpoint::kCompletion) {
    const CompletionPrompts prompts = parse_prompts(fields, model, kv.document.value_or(""), n_ctx);
    request.echoes = prompts.echoes;
    score_echoes(fields, request);
    take_best_of(fields, defaults, request);
    for (std::size_t i = 1; i < prompts.tokens.size(); ++i) {
      apply_kv(kv, defaults, prompts.tokens[i], false, request.more.emplace_back(batch));
    }
    apply_kv(kv, defaults, prompts.tokens.front(), false, batch);
    return request;
  }
  ChatFields chat = parse_chat(fields, !batch.sampling.grammar.empty());
  request.warnings.insert(request.warnings.end(), chat.warnings.begin(), chat.warnings.end());
  PromptTokens parts = chat_tokens(model, std::move(chat), kv.document, n_ctx, request);
  if (request.format != nullptr && request.is_streamed && batch.n_probabilities >= 0) {
    fields.refuse("logprobs", "is not available in a stream of tool calls or thoughts: leave it or 'stream' out");
  }
  apply_kv(kv, defaults, std::move(parts), true, batch);
  return request;
}

}  // namespace winnow::server
