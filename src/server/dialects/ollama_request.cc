#include "server/dialects/ollama_request.h"

#include <deque>
#include <set>

#include "base/utf8.h"

namespace winnow::server {
namespace {

// These options concern loading the model, which is done, or the machine. The context size is the server's.
const std::set<std::string> kPassedOver = {
    "num_ctx",   "num_keep", "num_batch", "num_gpu", "main_gpu",   "num_thread", "use_mmap",
    "use_mlock", "numa",     "low_vram",  "f16_kv",  "vocab_only", "logits_all", "penalize_newline"};
const std::set<std::string> kTaken = {"seed",
                                      "temperature",
                                      "top_k",
                                      "top_p",
                                      "min_p",
                                      "typical_p",
                                      "repeat_last_n",
                                      "repeat_penalty",
                                      "presence_penalty",
                                      "frequency_penalty",
                                      "mirostat",
                                      "mirostat_tau",
                                      "mirostat_eta",
                                      "stop"};

void translate_options(const Json& options, const Fields& fields, RequestBody& translated) {
  Json& body = translated.fields;
  if (options.is_null()) return;
  if (!options.is_object()) fields.refuse("options", "must be an object");
  const Fields inner = fields.inner("options", options);
  for (const auto& [name, value] : options.items()) {
    if (name == "num_predict") {
      const auto n = inner.integer(name, -2, INT32_MAX);
      // -1 and -2 mean as many tokens as the context has room for.
      translated.names["max_tokens"] = inner.path(name);
      if (n) body["max_tokens"] = *n < 0 ? INT32_MAX : std::max<std::int64_t>(*n, 1);
    } else if (kTaken.contains(name)) {
      // -1 means the whole context.
      translated.names[name] = inner.path(name);
      body[name] = name == "repeat_last_n" && value == -1 ? Json(1 << 16) : value;
    } else if (!kPassedOver.contains(name)) {
      // Unknown options give a warning, as in ollama: programs go on sending what it had once (tfs_z).
      translated.warnings.push_back("the option '" + valid_utf8(name.substr(0, 64)) +
                                    "' was ignored: there is no such option");
    }
  }
}

// Translates "format": "json", a schema or null.
void translate_format(const Json& format, const Fields& fields, RequestBody& body) {
  if (format.is_null() || format == "") return;
  body.names["response_format"] = "format";
  if (format == "json") {
    body.fields["response_format"] = {{"type", "json_object"}};
  } else if (format.is_object()) {
    body.fields["response_format"] = {{"type", "json_schema"}, {"json_schema", {{"schema", format}}}};
  } else {
    fields.refuse("format", "must be \"json\" or a schema");
  }
}

void translate_think(const Json& think, const Fields& fields, Json& body) {
  if (think.is_null()) return;
  if (think.is_boolean()) {
    body["chat_template_kwargs"] = {{"enable_thinking", think}};
  } else if (think == "low" || think == "medium" || think == "high") {
    body["reasoning_effort"] = think;
  } else {
    fields.refuse("think", "must be true, false, low, medium or high");
  }
}

void refuse_unless_empty(const Json& body, const Fields& fields, const char* name, const char* why) {
  const auto found = body.find(name);
  if (found == body.end() || found->is_null() || *found == "" || *found == false) return;
  if (found->is_structured() && found->empty()) return;
  fields.refuse(name, why);
}

// Translates "logprobs" and "top_logprobs" to those of OpenAI's chats or completions.
void translate_logprobs(const Json& given, const Fields& fields, Endpoint endpoint, Json& body) {
  const auto n = fields.integer("top_logprobs", 0, 20);
  if (!fields.boolean("logprobs").value_or(false)) {
    if (n.value_or(0) > 0) fields.refuse("top_logprobs", "needs 'logprobs': true");
    return;
  }
  if (endpoint == Endpoint::kCompletion) {
    body["logprobs"] = n.value_or(0);
    return;
  }
  body["logprobs"] = true;
  if (n) body["top_logprobs"] = given["top_logprobs"];
}

// Translates the fields of both routes: all but the messages or the prompt.
RequestBody translate_common(const Json& given, const Fields& fields) {
  RequestBody body;
  Json& to = body.fields;
  for (const char* name : {"model", "kv"}) {
    if (given.contains(name)) to[name] = given[name];
  }
  to["stream"] = given.value("stream", Json()).is_null() ? Json(true) : given["stream"];
  refuse_unless_empty(given, fields, "images", "is not supported by this server: leave it out");
  translate_options(given.value("options", Json()), fields, body);
  translate_format(given.value("format", Json()), fields, body);
  translate_think(given.value("think", Json()), fields, to);
  return body;
}

// Returns a message of OpenAI's chats. A tool's result names its tool or, with older clients, answers the next call.
Json message_of(const Fields& message, std::deque<std::string>& called) {
  Json made = Json::object();
  for (const char* name : {"role", "content", "tool_calls", "tool_call_id"}) {
    if (const Json* value = message.find(name)) made[name] = *value;
  }
  const std::string role = message.text("role").value_or("");
  if (const Json* images = message.find("images"); images != nullptr && !images->empty()) {
    message.refuse("images", "is not supported by this server: leave it out");
  }
  if (role == "assistant") {
    if (const auto thoughts = message.text("thinking")) made["reasoning_content"] = *thoughts;
    called.clear();
    if (const Json* calls = message.find("tool_calls"); calls != nullptr && calls->is_array()) {
      const Json::json_pointer name("/function/name");
      for (const Json& call : *calls) {
        if (call.contains(name) && call[name].is_string()) called.push_back(call[name]);
      }
    }
  } else if (!made.contains("content")) {
    made["content"] = "";
  }
  if (role != "tool") return made;
  std::string name = message.text("tool_name").value_or(message.text("name").value_or(""));
  if (name.empty() && !called.empty()) name = called.front();
  if (!called.empty()) called.pop_front();
  if (!name.empty()) made["name"] = name;
  // ollama accepts a result without a call.
  if (name.empty() && !made.contains("tool_call_id")) made["tool_call_id"] = "call";
  return made;
}

}  // namespace

bool is_ollama_load(const Json& body) {
  const auto is_nothing = [&](const char* name) {
    const auto found = body.find(name);
    return found == body.end() || found->is_null() || *found == "" || (found->is_array() && found->empty());
  };
  return is_nothing("messages") && is_nothing("prompt") && is_nothing("system") && is_nothing("suffix");
}

bool is_ollama_unload(const Json& body) {
  const auto found = body.find("keep_alive");
  if (found == body.end()) return false;
  if (found->is_number()) return *found == 0;
  if (!found->is_string()) return false;
  const auto& text = found->get_ref<const std::string&>();
  return !text.empty() && text.find_first_not_of("0.hmsun") == std::string::npos && text.find('0') != std::string::npos;
}

RequestBody translate_ollama_chat(const Json& given) {
  const Fields fields(given);
  RequestBody body = translate_common(given, fields);
  translate_logprobs(given, fields, Endpoint::kChat, body.fields);
  const Json* messages = fields.find("messages");
  if (messages == nullptr || !messages->is_array()) fields.refuse("messages", "must be a list of messages");
  Json& to = body.fields["messages"];
  to = Json::array();
  std::deque<std::string> called;
  fields.each("messages", *messages,
              [&](std::size_t /*i*/, const Fields& message) { to.push_back(message_of(message, called)); });
  const Json* tools = fields.find("tools");
  if (tools != nullptr && !(tools->is_array() && tools->empty())) body.fields["tools"] = *tools;
  return body;
}

OllamaGenerate translate_ollama_generate(const Json& given) {
  const Fields fields(given);
  refuse_unless_empty(given, fields, "template",
                      "is set by the server, not by requests: start it with --chat-template");
  refuse_unless_empty(given, fields, "context", "is not kept by this server: send the conversation to /api/chat");
  refuse_unless_empty(given, fields, "tools", "is supported by /api/chat only");
  OllamaGenerate made{.endpoint = Endpoint::kChat, .body = translate_common(given, fields)};
  const std::string prompt = fields.text("prompt").value_or("");
  const std::string system = fields.text("system").value_or("");
  Json& to = made.body.fields;
  const auto suffix = fields.text("suffix");
  const bool is_completion = fields.boolean("raw").value_or(false) || (suffix && !suffix->empty());
  translate_logprobs(given, fields, is_completion ? Endpoint::kCompletion : Endpoint::kChat, to);
  if (fields.boolean("raw").value_or(false)) {
    if (!system.empty()) fields.refuse("system", "has no effect with 'raw': put it into the prompt");
    made.endpoint = Endpoint::kCompletion;
    to["prompt"] = prompt;
    if (suffix && !suffix->empty()) to["suffix"] = *suffix;
    to.erase("chat_template_kwargs");
    return made;
  }
  if (suffix && !suffix->empty()) {
    if (!system.empty()) fields.refuse("system", "has no effect with 'suffix': leave it out");
    made.endpoint = Endpoint::kCompletion;
    to["prompt"] = prompt;
    to["suffix"] = *suffix;
    return made;
  }
  to["messages"] = Json::array();
  if (!system.empty()) to["messages"].push_back({{"role", "system"}, {"content", system}});
  to["messages"].push_back({{"role", "user"}, {"content", prompt}});
  return made;
}

}  // namespace winnow::server
