#include "server/dialects/responses_request.h"

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <string_view>

#include "server/chat_fields.h"

namespace winnow::server {
namespace {

// Returns the text of a string or of a list of parts.
std::string content_text(const Json& content, const Fields& fields, const std::string& name) {
  if (content.is_string()) return content;
  if (!content.is_array()) fields.refuse(name, "must be a string or a list of parts");
  std::string text;
  for (const Json& part : content) {
    const std::string type = part.is_object() && part.contains("type") && part["type"].is_string() ? part["type"] : "";
    const bool is_text = type == "input_text" || type == "output_text" || type == "text" || type == "summary_text" ||
                         type == "reasoning_text" || type == "refusal";
    const char* field = type == "refusal" ? "refusal" : "text";
    if (!is_text || !part.contains(field) || !part[field].is_string()) {
      fields.refuse(name, "may have text parts only: this server does not read images or files");
    }
    text += part[field].get_ref<const std::string&>();
  }
  return text;
}

// Returns the text of a tool's result. Parts other than text leave a placeholder, so that the conversation can go on.
std::string output_text(const Json& output, const Fields& item, std::vector<std::string>& warnings) {
  if (output.is_object()) return to_text(output);
  if (!output.is_array()) return content_text(output, item, "output");
  std::string text;
  for (const Json& part : output) {
    const Json type = part.is_object() ? part.value("type", Json()) : Json();
    const bool is_shown = !type.is_string() || type.get_ref<const std::string&>().ends_with("text");
    text += is_shown ? content_text(Json::array({part}), item, "output") : left_out(type, warnings);
  }
  return text;
}

// A type of item that calls a tool other than a function.
struct OtherCall {
  const char* type;
  const char* input;  // the field with the model's input
  const char* name;   // the tool's name; null: the item's own "name"
};
constexpr std::array<OtherCall, 5> kOtherCalls = {{{"custom_tool_call", "input", nullptr},
                                                   {"local_shell_call", "action", "local_shell"},
                                                   {"shell_call", "action", "shell"},
                                                   {"apply_patch_call", "operation", "apply_patch"},
                                                   {"mcp_call", "arguments", nullptr}}};

// Turns the items of a conversation into messages. A model's turn (thinking, text, calls) is several items, but one
// message.
class Conversation {
 public:
  Conversation(Json messages, std::vector<std::string>& warnings)
      : messages_(std::move(messages)), warnings_(warnings) {}

  void add(const Fields& item) {
    const std::string type = item.text("type").value_or("message");
    if (type == "message") {
      add_message(item);
    } else if (type == "function_call") {
      add_call(item);
    } else if (is_output(type)) {
      end_turn();
      const Json* output = item.find("output");
      messages_.push_back({{"role", "tool"},
                           {"tool_call_id", call_id_of(item)},
                           {"content", output == nullptr ? "" : output_text(*output, item, warnings_)}});
    } else if (const auto other = std::find_if(kOtherCalls.begin(), kOtherCalls.end(),
                                               [&](const OtherCall& call) { return type == call.type; });
               other != kOtherCalls.end()) {
      add_other_call(*other, item);
    } else if (type == "reasoning") {
      begin_turn();
      std::string thoughts = turn_.value("reasoning_content", "");
      if (const Json* content = item.find("content")) thoughts += content_text(*content, item, "content");
      if (!thoughts.empty()) turn_["reasoning_content"] = thoughts;
    } else if (is_left_out(type)) {
      warnings_.push_back("an item of type '" + type + "' in the conversation was left out");
    } else {
      item.refuse("type",
                  "must be message, function_call, function_call_output, reasoning or another type of OpenAI's");
    }
  }

  Json take() {
    end_turn();
    return std::move(messages_);
  }

 private:
  static bool is_output(const std::string& type) {
    static const std::set<std::string> kOutputs = {"function_call_output", "custom_tool_call_output",
                                                   "local_shell_call_output", "shell_call_output",
                                                   "apply_patch_call_output"};
    return kOutputs.contains(type);
  }
  // Returns whether items of this type, which concern work or data of OpenAI's own servers, are left out.
  static bool is_left_out(const std::string& type) {
    static const std::set<std::string> kLeftOut = {
        "web_search_call",       "file_search_call",     "code_interpreter_call",
        "image_generation_call", "computer_call",        "computer_call_output",
        "mcp_list_tools",        "mcp_approval_request", "item_reference",
        "mcp_approval_response", "compaction",           "tool_search_call",
        "tool_search_output",    "ghost_snapshot",       "other"};
    return kLeftOut.contains(type);
  }
  static std::string call_id_of(const Fields& item) {
    return item.text("call_id").value_or(item.text("id").value_or(""));
  }

  void begin_turn() {
    if (turn_.is_null()) turn_ = {{"role", "assistant"}, {"content", ""}};
  }
  void end_turn() {
    if (!turn_.is_null()) messages_.push_back(std::move(turn_));
    turn_ = nullptr;
  }

  void add_message(const Fields& item) {
    const std::string role = item.text("role").value_or("");
    if (role != "user" && role != "assistant" && role != "system" && role != "developer") {
      item.refuse("role", "must be user, assistant, system or developer");
    }
    const Json* content = item.find("content");
    if (content == nullptr) item.refuse("content", "is missing");
    const std::string text = content_text(*content, item, "content");
    if (role != "assistant") {
      end_turn();
      messages_.push_back({{"role", role}, {"content", text}});
      return;
    }
    // After text or calls another message begins.
    if (!turn_.is_null() && (turn_["content"] != "" || turn_.contains("tool_calls"))) end_turn();
    begin_turn();
    turn_["content"] = text;
  }

  void add_call(const Fields& item) {
    if (item.text("status") == "incomplete") {
      warnings_.emplace_back("a call that was cut off was left out of the conversation");
      return;
    }
    begin_turn();
    const auto name = item.text("name");
    if (!name || name->empty()) item.refuse("name", "is missing");
    turn_["tool_calls"].push_back(
        {{"id", item.text("call_id").value_or("")},
         {"type", "function"},
         {"function", {{"name", *name}, {"arguments", item.text("arguments").value_or("{}")}}}});
  }

  void add_other_call(const OtherCall& other, const Fields& item) {
    begin_turn();
    const auto name = other.name != nullptr ? std::optional<std::string>(other.name) : item.text("name");
    if (!name || name->empty()) item.refuse("name", "is missing");
    const Json* input = item.find(other.input);
    std::string arguments = "{}";
    if (input != nullptr) {
      const bool is_json = input->is_object() || std::string_view(other.input) == "arguments";
      arguments = !is_json             ? to_text(Json{{"input", *input}})
                  : input->is_string() ? input->get<std::string>()
                                       : to_text(*input);
    }
    turn_["tool_calls"].push_back(
        {{"id", call_id_of(item)}, {"type", "function"}, {"function", {{"name", *name}, {"arguments", arguments}}}});
    // The result of an MCP server's tool is in the item of its call.
    if (const Json* output = item.find("output"); output != nullptr && std::string_view(other.type) == "mcp_call") {
      end_turn();
      messages_.push_back(
          {{"role", "tool"}, {"tool_call_id", call_id_of(item)}, {"content", output_text(*output, item, warnings_)}});
    }
  }

  Json messages_, turn_;
  std::vector<std::string>& warnings_;
};

Json messages_of_input(const Json& input, Json before, const Fields& fields, std::vector<std::string>& warnings) {
  if (input.is_string()) {
    before.push_back({{"role", "user"}, {"content", input}});
    return before;
  }
  if (!input.is_array() || (input.empty() && before.empty())) {
    fields.refuse("input", "must be a string or a list of items");
  }
  Conversation conversation(std::move(before), warnings);
  fields.each("input", input, [&](std::size_t /*i*/, const Fields& item) { conversation.add(item); });
  return conversation.take();
}

void translate_function_tools(const Json& list, const Fields& fields, RequestBody& body) {
  fields.each("tools", list, [&](std::size_t i, const Fields& tool) {
    const std::string type = tool.text("type").value_or("");
    if (type != "function") {
      body.warnings.push_back("a tool of type '" + type.substr(0, 64) +
                              "' was ignored: this server supports functions only");
      return;
    }
    Json function = Json::object();
    for (const char* name : {"name", "description", "parameters", "strict"}) {
      if (const Json* value = tool.find(name)) function[name] = *value;
    }
    body.add_tool(i, std::move(function));
  });
}

// Translates "tool_choice", after the tools have been translated; "allowed_tools" removes the others.
void translate_tool_choice(const Json& choice, const Fields& fields, RequestBody& body) {
  Json& to = body.fields;
  if (choice.is_null()) return;
  if (!choice.is_string() && !choice.is_object()) {
    fields.refuse("tool_choice", "must be auto, none, required or an object");
  }
  if (!to.contains("tools")) return;
  if (choice.is_string()) {
    to["tool_choice"] = choice;
    return;
  }
  const Fields inner = fields.inner("tool_choice", choice);
  const std::string type = inner.text("type").value_or("");
  if (type == "function") {
    to["tool_choice"] = {{"type", "function"}, {"function", {{"name", inner.text("name").value_or("")}}}};
    return;
  }
  const Json* allowed = inner.find("tools");
  if (type != "allowed_tools" || allowed == nullptr || !allowed->is_array()) {
    inner.refuse("type", "must be function, or allowed_tools with a list 'tools'");
  }
  const std::string mode = inner.text("mode").value_or("auto");
  body.keep_tools([&](const Json& name) {
    return std::any_of(allowed->begin(), allowed->end(),
                       [&](const Json& one) { return one.is_object() && one.contains("name") && one["name"] == name; });
  });
  to["tool_choice"] = mode;
}

// Translates "text": {"format": {"type": "json_schema", "schema": ..}}.
void translate_format(const Json& wanted, const Fields& fields, Json& to) {
  if (wanted.is_null()) return;
  if (!wanted.is_object()) fields.refuse("text", "must be an object");
  const Fields outer = fields.inner("text", wanted);
  const Json* format = outer.object("format");
  if (format == nullptr) return;
  const Fields inner = outer.inner("format", *format);
  const std::string type = inner.text("type").value_or("text");
  if (type != "json_schema") {
    to["response_format"] = {{"type", type}};
    return;
  }
  const Json* schema = inner.object("schema");
  if (schema == nullptr) inner.refuse("schema", "is missing");
  to["response_format"] = {{"type", type}, {"json_schema", {{"schema", *schema}}}};
  if (const auto is_strict = inner.boolean("strict")) to["response_format"]["json_schema"]["strict"] = *is_strict;
}

// Items have no log-probabilities here, since their text is parsed apart from the tokens.
void warn_of_logprobs(const Json& top, const Json& include, std::vector<std::string>& warnings) {
  const bool is_included =
      include.is_array() && std::find(include.begin(), include.end(), "message.output_text.logprobs") != include.end();
  if (!is_included && (!top.is_number() || top == 0)) return;
  warnings.emplace_back(
      "log-probabilities were left out: this route has none; ask /v1/chat/completions with 'logprobs' for them");
}

// Returns the fields that the answer repeats, with defaults for those that are missing.
Json repeated(const Json& body) {
  Json given = {{"instructions", nullptr},
                {"max_output_tokens", nullptr},
                {"metadata", Json::object()},
                {"parallel_tool_calls", true},
                {"previous_response_id", nullptr},
                {"temperature", nullptr},
                {"text", {{"format", {{"type", "text"}}}}},
                {"tool_choice", "auto"},
                {"tools", Json::array()},
                {"top_p", nullptr},
                {"truncation", "disabled"},
                {"reasoning", nullptr},
                {"user", nullptr}};
  for (auto& [name, value] : given.items()) {
    const auto found = body.find(name);
    if (found != body.end() && !found->is_null()) value = *found;
  }
  return given;
}

}  // namespace

ResponsesRequest translate_responses(Json body, ResponseStore& store) {
  ResponsesRequest request;
  Json& to = request.body.fields;
  to = std::move(body);
  request.body.names = {{"max_tokens", "max_output_tokens"},
                        {"reasoning_effort", "reasoning.effort"},
                        {"response_format", "text.format"},
                        {"messages", "input"},
                        {"tools[].function", ""},
                        {"tool_choice.function", ""}};
  request.given = repeated(to);
  const Fields fields(request.given);
  // These fields are only repeated, but clients' packages rely on their types.
  fields.object("metadata");
  for (const char* name : {"truncation", "user"}) fields.text(name);
  const auto refuse_true = [&](const char* name, const char* why) {
    const Json value = take(to, name);
    if (!value.is_null() && value != false) fields.refuse(name, why);
  };
  refuse_true("background", "is not supported by this server: leave it out, and stream the answer");
  refuse_true("conversation", "is not supported by this server: use 'previous_response_id'");
  refuse_true("prompt", "is not supported by this server: send 'instructions' and 'input'");
  const Json is_stored = take(to, "store"), previous = take(to, "previous_response_id");
  if (!is_stored.is_null() && !is_stored.is_boolean()) fields.refuse("store", "must be true or false");
  request.is_stored = is_stored != false;
  Json before = Json::array();
  if (!previous.is_null()) {
    if (!previous.is_string()) fields.refuse("previous_response_id", "must be a string");
    const auto found = store.find(previous);
    if (!found) {
      throw ApiError(404,
                     "the response that 'previous_response_id' names is unknown or no longer kept: send the "
                     "conversation as 'input'",
                     "previous_response_id", "previous_response_not_found");
    }
    before = Json::parse(found->messages);
  }
  request.messages = messages_of_input(take(to, "input"), std::move(before), fields, request.body.warnings);
  to["messages"] = request.messages;
  if (const Json instructions = take(to, "instructions"); !instructions.is_null()) {
    if (!instructions.is_string()) fields.refuse("instructions", "must be a string");
    to["messages"].insert(to["messages"].begin(), Json{{"role", "system"}, {"content", instructions}});
  }
  Fields(to).integer("max_output_tokens", 1, INT32_MAX);
  if (Json n = take(to, "max_output_tokens"); !n.is_null()) to["max_tokens"] = std::move(n);
  if (const Json reasoning = take(to, "reasoning"); !reasoning.is_null()) {
    if (!reasoning.is_object()) fields.refuse("reasoning", "must be an object");
    if (const auto effort = fields.inner("reasoning", reasoning).text("effort")) to["reasoning_effort"] = *effort;
  }
  const Json tools = take(to, "tools"), choice = take(to, "tool_choice"), format = take(to, "text");
  warn_of_logprobs(take(to, "top_logprobs"), take(to, "include"), request.body.warnings);
  for (const char* name : {"n", "logprobs", "stream_options", "response_format", "metadata"}) {
    to.erase(name);
  }
  translate_function_tools(tools, fields, request.body);
  translate_tool_choice(choice, fields, request.body);
  translate_format(format, fields, to);
  return request;
}

}  // namespace winnow::server
