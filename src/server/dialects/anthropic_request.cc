#include "server/dialects/anthropic_request.h"

#include <string>
#include <utility>
#include <vector>

#include "server/chat_fields.h"

namespace winnow::server {
namespace {

constexpr std::size_t kMostTitleBytes = 256;

// Returns the text of a string or of a list of blocks of type "text".
std::string text_of(const Json& content, const Fields& fields, const std::string& name) {
  if (content.is_string()) return content;
  if (!content.is_array()) fields.refuse(name, "must be a string or a list of blocks");
  std::string text;
  for (const Json& block : content) {
    const bool is_text = block.is_object() && block.value("type", Json()) == "text" && block.contains("text") &&
                         block["text"].is_string();
    if (!is_text) fields.refuse(name, "may have blocks of type 'text' only");
    text += block["text"].get_ref<const std::string&>();
  }
  return text;
}

// Returns the text of a tool's result. Blocks of other types, such as images and references to tools, leave a
// placeholder, so that the conversation can go on.
std::string result_text(const Json& content, const Fields& fields, std::vector<std::string>& warnings) {
  if (!content.is_array()) return text_of(content, fields, "content");
  std::string text;
  for (const Json& block : content) {
    const Json type = block.is_object() ? block.value("type", Json()) : Json();
    if (!type.is_string() || type == "text") {
      text += text_of(Json::array({block}), fields, "content");
      continue;
    }
    text += left_out(type, warnings);
    // These fields describe a reference or a document.
    for (const char* name : {"tool_name", "title", "source"}) {
      if (block.contains(name) && block[name].is_string()) {
        text += " " + block[name].get_ref<const std::string&>().substr(0, kMostTitleBytes);
      }
    }
  }
  return text;
}

// Returns whether blocks of this type in an assistant's message come from Anthropic's own tools.
bool is_of_their_tools(const std::string& type) {
  return type.ends_with("_tool_result") || type == "server_tool_use" || type == "mcp_tool_use" ||
         type == "container_upload";
}

// A message's blocks, which become one message or, with results of tools, several.
class Blocks {
 public:
  Blocks(const Fields& message, bool is_assistant, std::vector<std::string>& warnings)
      : message_(message), is_assistant_(is_assistant), warnings_(warnings) {}

  void add(const Fields& block) {
    const std::string type = block.text("type").value_or("");
    if (type == "text") {
      const auto more = block.text("text");
      if (!more) block.refuse("text", "is missing");
      text_ += *more;
    } else if (type == "tool_result" && !is_assistant_) {
      const auto id = block.text("tool_use_id");
      if (!id || id->empty()) {
        block.refuse("tool_use_id", "is missing: give the 'id' of the call that this block answers");
      }
      const Json* content = block.find("content");
      results_.push_back({{"role", "tool"},
                          {"tool_call_id", *id},
                          {"content", content == nullptr ? "" : result_text(*content, block, warnings_)}});
    } else if (type == "tool_use" && is_assistant_) {
      const auto name = block.text("name");
      if (!name || name->empty()) block.refuse("name", "is missing");
      const Json* input = block.object("input");
      calls_.push_back({{"id", block.text("id").value_or("")},
                        {"type", "function"},
                        {"function", {{"name", *name}, {"arguments", input == nullptr ? Json::object() : *input}}}});
    } else if (type == "thinking" && is_assistant_) {
      thoughts_ += block.text("thinking").value_or("");
    } else if (is_assistant_ && is_of_their_tools(type)) {
      text_ += left_out(type, warnings_);
    } else if (type != "redacted_thinking" || !is_assistant_) {
      block.refuse("type", is_assistant_ ? "must be text, thinking or tool_use in an assistant's message"
                                         : "must be text or tool_result: this server does not read images or files");
    }
  }

  // Appends the messages. Results of tools come before the user's text.
  void append_to(Json& messages) {
    for (Json& result : results_) messages.push_back(std::move(result));
    if (!is_assistant_) {
      if (!text_.empty() || results_.empty()) messages.push_back({{"role", "user"}, {"content", text_}});
      return;
    }
    Json message = {{"role", "assistant"}, {"content", text_}};
    if (!thoughts_.empty()) message["reasoning_content"] = thoughts_;
    if (!calls_.empty()) message["tool_calls"] = std::move(calls_);
    messages.push_back(std::move(message));
  }

 private:
  const Fields& message_;
  const bool is_assistant_;
  std::vector<std::string>& warnings_;
  std::string text_, thoughts_;
  Json results_ = Json::array(), calls_ = Json::array();
};

Json messages_of(const Json& system, const Json& list, const Fields& fields, std::vector<std::string>& warnings) {
  Json messages = Json::array();
  if (!system.is_null()) messages.push_back({{"role", "system"}, {"content", text_of(system, fields, "system")}});
  if (!list.is_array() || list.empty()) fields.refuse("messages", "must be a list of at least one message");
  fields.each("messages", list, [&](std::size_t /*i*/, const Fields& message) {
    const std::string role = message.text("role").value_or("");
    if (role != "user" && role != "assistant" && role != "system") {
      message.refuse("role", "must be user, assistant or system");
    }
    const Json* content = message.find("content");
    if (content == nullptr) message.refuse("content", "is missing");
    if (content->is_string() || role == "system") {
      messages.push_back({{"role", role}, {"content", text_of(*content, message, "content")}});
      return;
    }
    if (!content->is_array()) message.refuse("content", "must be a string or a list of blocks");
    Blocks blocks(message, role == "assistant", warnings);
    std::size_t n_blocks = 0;
    for (const Json& block : *content) {
      if (!block.is_object()) message.refuse("content", "must be a string or a list of blocks");
      blocks.add(message.inner("content", n_blocks++, block));
    }
    blocks.append_to(messages);
  });
  return messages;
}

// Translates the tools. Those that Anthropic's own servers run, which have a dated type and no input schema, are left
// out.
void translate_named_tools(const Json& list, const Fields& fields, RequestBody& body) {
  fields.each("tools", list, [&](std::size_t i, const Fields& tool) {
    const std::string type = tool.text("type").value_or("custom");
    if (type != "custom" && type != "function") {
      body.warnings.push_back("a tool of type '" + type.substr(0, 64) +
                              "' was ignored: this server has no tools of its own");
      return;
    }
    Json function = {{"name", tool.text("name").value_or("")}, {"description", tool.text("description").value_or("")}};
    if (const Json* schema = tool.find("input_schema")) function["parameters"] = *schema;
    body.add_tool(i, std::move(function));
  });
}

void translate_tool_choice(const Json& choice, const Fields& fields, Json& body) {
  if (choice.is_null()) return;
  if (!choice.is_object()) fields.refuse("tool_choice", "must be an object");
  const Fields inner = fields.inner("tool_choice", choice);
  const std::string type = inner.text("type").value_or("");
  if (type == "tool") {
    body["tool_choice"] = {{"type", "function"}, {"function", {{"name", inner.text("name").value_or("")}}}};
  } else if (type == "auto" || type == "none" || type == "any") {
    body["tool_choice"] = type == "any" ? "required" : type;
  } else {
    inner.refuse("type", "must be auto, any, tool or none");
  }
  if (const auto is_disabled = inner.boolean("disable_parallel_tool_use")) body["parallel_tool_calls"] = !*is_disabled;
}

// Translates "thinking", which is off, as in Anthropic's API, unless the request turns it on.
void translate_thinking(const Json& thinking, const Fields& fields, Json& body) {
  bool is_on = false;
  if (!thinking.is_null()) {
    if (!thinking.is_object()) fields.refuse("thinking", "must be an object");
    const Fields inner = fields.inner("thinking", thinking);
    const std::string type = inner.text("type").value_or("");
    if (type != "enabled" && type != "disabled" && type != "adaptive") {
      inner.refuse("type", "must be enabled, adaptive or disabled");
    }
    is_on = type != "disabled";
  }
  Json& arguments = body["chat_template_kwargs"];
  if (arguments.is_null()) arguments = Json::object();
  if (arguments.is_object() && !arguments.contains("enable_thinking")) arguments["enable_thinking"] = is_on;
}

// Translates the format of the answer: "output_config" with its "format" and "effort", or the older "output_format".
void translate_output(const Json& config, const Json& format, const Fields& fields, RequestBody& body) {
  const Json* wanted = &format;
  std::string name = "output_format";
  if (!config.is_null()) {
    if (!config.is_object()) fields.refuse("output_config", "must be an object");
    const Fields inner = fields.inner("output_config", config);
    if (const auto effort = inner.text("effort")) body.fields["reasoning_effort"] = *effort;
    if (const Json* inner_format = inner.object("format")) {
      wanted = inner_format;
      name = inner.path("format");
    }
  }
  if (wanted->is_null()) return;
  if (!wanted->is_object()) fields.refuse(name, "must be an object");
  const Fields inner = fields.inner(name, *wanted);
  if (wanted->value("type", Json()) != "json_schema") inner.refuse("type", "must be json_schema");
  const Json* schema = inner.object("schema");
  if (schema == nullptr) inner.refuse("schema", "is missing");
  body.fields["response_format"] = {{"type", "json_schema"}, {"json_schema", {{"schema", *schema}}}};
  body.names["response_format"] = name;
}

}  // namespace

RequestBody translate_messages(Json given) {
  RequestBody body;
  body.names = {{"stop", "stop_sequences"},
                {"reasoning_effort", "output_config.effort"},
                {"tools[].function", ""},
                {"tools[].function.parameters", "input_schema"},
                {"tool_choice.function", ""}};
  Json& to = body.fields;
  to = std::move(given);
  const Json whole = Json::object();  // for errors that name fields of the body itself
  const Fields fields(whole);
  const Json system = take(to, "system"), messages = take(to, "messages");
  to["messages"] = messages_of(system, messages, fields, body.warnings);
  Fields(to).integer("max_tokens", 1, INT32_MAX);
  if (Json stops = take(to, "stop_sequences"); !stops.is_null()) to["stop"] = std::move(stops);
  const Json tools = take(to, "tools"), choice = take(to, "tool_choice"), thinking = take(to, "thinking");
  const Json config = take(to, "output_config"), format = take(to, "output_format");
  // These belong to other dialects. An answer here is the only one, without probabilities, with its usage.
  for (const char* name : {"n", "logprobs", "top_logprobs", "stream_options", "response_format", "container"}) {
    to.erase(name);
  }
  translate_named_tools(tools, fields, body);
  if (to.contains("tools")) translate_tool_choice(choice, fields, to);
  translate_thinking(thinking, fields, to);
  translate_output(config, format, fields, body);
  return body;
}

}  // namespace winnow::server
