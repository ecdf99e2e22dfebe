#include "server/chat_fields.h"

#include <algorithm>
#include <cctype>
#include <set>

#include "base/utf8.h"
#include "server/body_json.h"

namespace winnow::server {
namespace {

constexpr std::size_t kMostTools = 128;
constexpr std::size_t kMostNameBytes = 128;  // Anthropic's limit; OpenAI's is 64
// The most values of all tools' schemas together: the time that they take, on the request's thread, grows with them.
constexpr std::size_t kMostToolSchemaValues = 50'000;

// Returns the text of a part, or null if it has none. A refusal is what the assistant has said.
const Json* text_in(const Json& part) {
  for (const char* type : {"text", "refusal"}) {
    if (part.is_object() && part.value("type", Json()) == type && part.contains(type) && part[type].is_string()) {
      return &part[type];
    }
  }
  return nullptr;
}

// Returns a message's text. `placeholders` is set for results of tools, where placeholders take the place of parts that
// are not text, so that the conversation can go on; it receives the warnings.
std::string parse_content(const Json& content, const Fields& fields, std::vector<std::string>* placeholders) {
  if (content.is_null()) return "";
  if (content.is_string()) return content;
  if (!content.is_array()) fields.refuse("content", "must be a string or a list of parts");
  std::string text;
  for (const Json& part : content) {
    const Json type = part.is_object() ? part.value("type", Json()) : Json();
    if (const Json* shown = text_in(part)) {
      text += shown->get_ref<const std::string&>();
    } else if (placeholders != nullptr && type.is_string() && type != "text") {
      text += left_out(type, *placeholders);
    } else {
      fields.refuse("content", "may have parts of type 'text' only");
    }
  }
  return text;
}

// Returns the arguments of a call as text, in the order in which the model has written them.
std::string parse_arguments(const Fields& function) {
  const Json* arguments = function.find("arguments");
  if (arguments == nullptr) return "{}";
  if (!arguments->is_string()) return to_text(*arguments);
  const auto& text = arguments->get_ref<const std::string&>();
  if (text.find_first_not_of(" \n\r\t") == std::string::npos) return "{}";  // a call without arguments
  try {
    parse_json(text);
  } catch (const ApiError&) {
    function.refuse("arguments", "must be JSON, nested at most " + std::to_string(kMostJsonLevels) +
                                     " levels deep, with at most " + std::to_string(kMostNamesOfObject) +
                                     " names in one object");
  }
  return text;
}

std::vector<ChatToolCall> parse_calls(const Fields& message) {
  std::vector<ChatToolCall> calls;
  const Json* list = message.find("tool_calls");
  if (list == nullptr) return calls;
  message.each("tool_calls", *list, [&](std::size_t /*i*/, const Fields& call) {
    const Json* function = call.object("function");
    if (function == nullptr) call.refuse("function", "is missing");
    const Fields inner = call.inner("function", *function);
    ChatToolCall& made = calls.emplace_back();
    made.id = call.text("id").value_or("");
    made.name = inner.text("name").value_or("");
    if (made.name.empty()) inner.refuse("name", "is missing");
    made.arguments = parse_arguments(inner);
  });
  return calls;
}

ChatMessage parse_message(const Json& one, const Fields& message, std::vector<std::string>& warnings) {
  ChatMessage made;
  made.role = message.text("role").value_or("");
  if (made.role == "function") message.refuse("role", "is the outdated 'function': answer calls with role 'tool'");
  static const std::set<std::string> kRoles = {"system", "developer", "user", "assistant", "tool"};
  if (!kRoles.contains(made.role)) message.refuse("role", "must be system, developer, user, assistant or tool");
  const bool is_assistant = made.role == "assistant";
  if (!one.contains("content") && !is_assistant) message.refuse("content", "is missing");
  if (one.contains("content")) {
    made.content = parse_content(one["content"], message, made.role == "tool" ? &warnings : nullptr);
  }
  made.name = message.text("name").value_or("");
  made.tool_call_id = message.text("tool_call_id").value_or("");
  if (is_assistant) {
    made.reasoning = message.text("reasoning_content").value_or("");
    made.tool_calls = parse_calls(message);
  } else if (message.find("tool_calls") != nullptr) {
    message.refuse("tool_calls", "is allowed in an assistant's message only");
  }
  if (made.role == "tool" && made.tool_call_id.empty() && made.name.empty()) {
    message.refuse("tool_call_id", "is missing: give the 'id' of the call that this message answers");
  }
  return made;
}

std::vector<ChatMessage> parse_messages(const Fields& fields, std::vector<std::string>& warnings) {
  const Json* json = fields.find("messages");
  if (json == nullptr || !json->is_array() || json->empty()) {
    fields.refuse("messages", "must be a list of at least one message");
  }
  std::vector<ChatMessage> messages;
  fields.each("messages", *json, [&](std::size_t i, const Fields& message) {
    messages.push_back(parse_message((*json)[i], message, warnings));
  });
  // A tool's result has the id of its call; many templates want the tool's name instead.
  std::map<std::string, std::string> names;
  for (ChatMessage& message : messages) {
    for (const ChatToolCall& call : message.tool_calls) names[call.id] = call.name;
    const auto found = names.find(message.tool_call_id);
    if (message.role == "tool" && message.name.empty() && found != names.end()) message.name = found->second;
  }
  return messages;
}

std::vector<ChatTool> parse_tools(const Fields& fields) {
  std::vector<ChatTool> tools;
  const Json* list = fields.find("tools");
  if (list == nullptr) return tools;
  if (list->is_array() && list->size() > kMostTools) {
    fields.refuse("tools", "may have " + std::to_string(kMostTools) + " entries at most");
  }
  std::size_t n_values = 0;
  fields.each("tools", *list, [&](std::size_t /*i*/, const Fields& tool) {
    if (tool.text("type").value_or("function") != "function") tool.refuse("type", "must be function");
    const Json* object = tool.object("function");
    if (object == nullptr) tool.refuse("function", "is missing");
    const Fields function = tool.inner("function", *object);
    ChatTool& made = tools.emplace_back();
    made.name = function.text("name").value_or("");
    const auto is_letter = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.'; };
    if (made.name.empty() || made.name.size() > kMostNameBytes ||
        !std::all_of(made.name.begin(), made.name.end(), is_letter)) {
      function.refuse("name", "must have 1 to " + std::to_string(kMostNameBytes) + " letters, digits, '_', '-' or '.'");
    }
    made.description = function.text("description").value_or("");
    function.boolean("strict");  // only its type is checked: calls follow their schema as far as it can be enforced
    const Json* parameters = function.find("parameters");
    if (parameters != nullptr && *parameters != true) {
      if (!parameters->is_object()) function.refuse("parameters", "must be a JSON schema");
      n_values += size_of(*parameters).n_values;
      if (n_values > kMostToolSchemaValues) {
        function.refuse("parameters", "brings the parameters of all tools to more than " +
                                          std::to_string(kMostToolSchemaValues) + " values: shorten them");
      }
      made.parameters = to_text(*parameters);
    }
  });
  return tools;
}

// Removes the tools that {"type": "allowed_tools", "allowed_tools": {"mode": .., "tools": [..]}} does not name.
void keep_allowed_tools(const Fields& choice, ChatOptions& options) {
  const Json* object = choice.object("allowed_tools");
  if (object == nullptr) choice.refuse("allowed_tools", "is missing: give an object with 'mode' and 'tools'");
  const Fields allowed = choice.inner("allowed_tools", *object);
  const std::string mode = allowed.text("mode").value_or("auto");
  if (mode != "auto" && mode != "required") allowed.refuse("mode", "must be auto or required");
  const Json* list = allowed.find("tools");
  if (list == nullptr || !list->is_array()) allowed.refuse("tools", "must be a list of functions");
  const Json::json_pointer name("/function/name");
  std::erase_if(options.tools, [&](const ChatTool& tool) {
    return std::none_of(list->begin(), list->end(), [&](const Json& one) {
      return one.is_object() && one.contains(name) && one[name] == tool.name;
    });
  });
  if (options.tools.empty()) allowed.refuse("tools", "must name one of the tools: {\"function\": {\"name\": ..}}");
  options.tool_choice = mode == "auto" ? ToolChoice::kAuto : ToolChoice::kRequired;
}

void parse_tool_choice(const Fields& fields, ChatOptions& options) {
  const Json* choice = fields.find("tool_choice");
  if (choice == nullptr) return;
  if (*choice == "auto" || *choice == "none" || *choice == "required") {
    options.tool_choice = *choice == "auto"   ? ToolChoice::kAuto
                          : *choice == "none" ? ToolChoice::kNone
                                              : ToolChoice::kRequired;
    if (*choice == "required" && options.tools.empty()) {
      fields.refuse("tool_choice", "is \"required\", but the request has no tools: add some, or leave it out");
    }
    return;
  }
  if (!choice->is_object()) {
    fields.refuse("tool_choice", "must be auto, none, required, or an object that names a function or allowed tools");
  }
  const Json nothing = Json::object();
  const Fields inner = fields.inner("tool_choice", *choice);
  const std::string type = inner.text("type").value_or("function");
  if (type == "allowed_tools") {
    keep_allowed_tools(inner, options);
    return;
  }
  if (type != "function") inner.refuse("type", "must be function or allowed_tools");
  // The name stands next to the type in OpenAI's responses, whose form some clients send here, too.
  const Json* object = inner.object("function");
  if (object == nullptr) object = inner.find("name") != nullptr ? choice : &nothing;
  const Fields function = inner.inner("function", *object);
  const std::string name = function.text("name").value_or("");
  const auto found =
      std::find_if(options.tools.begin(), options.tools.end(), [&](const ChatTool& tool) { return tool.name == name; });
  if (found == options.tools.end()) function.refuse("name", "must be the name of one of the tools");
  options.tools = {*found};
  options.tool_choice = ToolChoice::kRequired;
  options.parallel_tool_calls = false;  // it is called once, unless the request says otherwise
}

void parse_thinking(const Fields& fields, bool has_grammar, ChatOptions& options) {
  // An answer that follows a grammar has no room for thinking before it.
  options.enable_thinking = !has_grammar;
  if (const Json* arguments = fields.object("chat_template_kwargs")) {
    if (arguments->size() > 64) fields.refuse("chat_template_kwargs", "may have 64 fields at most");
    static const std::set<std::string> kTaken = {"messages", "tools", "bos_token", "eos_token",
                                                 "add_generation_prompt"};
    for (const auto& [name, value] : arguments->items()) {
      if (kTaken.contains(name)) {
        fields.refuse("chat_template_kwargs", "may not have '" + name + "', which the server sets");
      }
      if (name != "enable_thinking") options.arguments[name] = to_text(value);
    }
    const auto on = fields.inner("chat_template_kwargs", *arguments).boolean("enable_thinking");
    if (on) options.enable_thinking = *on;
  }
  if (const auto effort = fields.text("reasoning_effort")) {
    static const std::set<std::string> kEfforts = {"none", "minimal", "low", "medium", "high", "xhigh", "max"};
    if (!kEfforts.contains(*effort)) {
      fields.refuse("reasoning_effort", "must be none, minimal, low, medium, high, xhigh or max");
    }
    if (*effort == "none") options.enable_thinking = false;
    if (*effort != "none") options.arguments["reasoning_effort"] = to_text(*effort);
  }
  if (const auto format = fields.text("reasoning_format")) {
    if (*format != "none" && *format != "auto" && *format != "deepseek") {
      fields.refuse("reasoning_format", "must be none, auto or deepseek");
    }
    options.separates_thinking = *format != "none";
  }
}

}  // namespace

std::string left_out(const std::string& type, std::vector<std::string>& warnings) {
  const std::string name = valid_utf8(type.substr(0, 64));
  warnings.push_back("a part of type '" + name + "' in a tool's result was left out: this server reads text only");
  return "[" + name + ": left out]";
}

ChatFields parse_chat(const Fields& fields, bool has_grammar) {
  ChatFields chat;
  chat.messages = parse_messages(fields, chat.warnings);
  chat.options.tools = parse_tools(fields);
  parse_tool_choice(fields, chat.options);
  if (has_grammar && !chat.options.tools.empty() && chat.options.tool_choice != ToolChoice::kNone) {
    fields.refuse("tools", "cannot be combined with '" + fields.path("grammar") + "' or '" +
                               fields.path("response_format") +
                               "', since tool calls have their own format: leave one out");
  }
  if (const auto is_parallel = fields.boolean("parallel_tool_calls")) chat.options.parallel_tool_calls = is_parallel;
  parse_thinking(fields, has_grammar, chat.options);
  const ChatMessage& last = chat.messages.back();
  chat.options.continues_last =
      last.role == "assistant" && last.tool_calls.empty() && (!last.content.empty() || !last.reasoning.empty());
  return chat;
}

}  // namespace winnow::server
