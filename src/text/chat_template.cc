// The interface to libllama-common: its headers are included by this file, chat_format.h, chat_reader.cc,
// call_grammar.cc, call_tree.h and template_limits.cc alone. They promise no stable interface: scripts/setup.sh takes
// them from the sources that the library was built from, and tests/text/chat_template_test.cc fails if the two do not
// fit.
#include "text/chat_template.h"

#include <chat.h>
#include <ggml-backend.h>
#include <llama.h>
#include <log.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "text/call_grammar.h"
#include "text/call_ids.h"
#include "text/chat_format.h"
#include "text/distinct_names.h"
#include "text/template_limits.h"
#include "text/tool_schemas.h"
#include "winnow/error.h"

// The struct of libllama-common's chat.cpp, whose functions take a pointer to it. It is repeated here because
// libllama-common's own function that makes one runs the template before it can be bounded.
struct common_chat_templates {
  bool add_bos;
  bool add_eos;
  bool has_explicit_template;
  std::unique_ptr<common_chat_template> template_default;
  std::unique_ptr<common_chat_template> template_tool_use;
};

namespace winnow {
namespace {

// libllama-common.so does not record where the libggml.so that it needs lies. With a reference of our own, the loader
// searches next to the other libraries.
[[gnu::used]] const auto kNeedsLibggml = &ggml_backend_reg_count;

// The steps that a longer chat may take beyond TemplateSteps::rendering: for each message or tool, and one for so many
// bytes.
constexpr std::size_t kStepsOfMessage = 1'000, kBytesOfStep = 8;

constexpr const char* kChatml =
    "{%- for message in messages -%}{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' -}}"
    "{%- endfor -%}{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}";

[[noreturn]] void refuse_template(const std::string& what) {
  throw Error(ErrorCode::kUnsupported, "the chat template " + what);
}

[[noreturn]] void refuse_tools() {
  refuse_template("does not support tools: leave them out, or name one that does with --chat-template-file");
}

constexpr const char* kWayOut = ": name another with --chat-template-file, or give the prompt as text";

// Returns the reason in an error of the interpreter. Its lines are the position, the source there, and at last "Error:
// " and the reason.
std::string reason_of(const std::string& text) {
  constexpr std::string_view kLead = "Error: ";
  const std::size_t at = text.rfind(kLead);
  std::string reason = at == std::string::npos ? text : text.substr(at + kLead.size());
  while (!reason.empty() && (reason.back() == '\n' || reason.back() == '.')) reason.pop_back();
  constexpr std::size_t kMostReason = 300;
  return reason.substr(0, kMostReason);
}

// Runs libllama-common's code on a budget. Its exceptions become Error(kUnsupported), with `what` before the reason.
template <typename Work>
auto within(std::size_t n_steps, const std::string& what, Work work) {
  TemplateBudget budget(n_steps);
  try {
    return work();
  } catch (const TemplateLimit& limit) {
    refuse_template(limit.reason + kWayOut);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    refuse_template(what + ": " + reason_of(error.what()) + kWayOut);
  }
}

void replace_all(std::string& text, const std::string& what, const std::string& with) {
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += with.size()) {
    text.replace(at, what.size(), with);
  }
}

// Removes checks by which two templates refuse valid messages, as common_chat_templates_init does.
std::string mended(std::string source) {
  replace_all(source,
              "{%- if \"<|channel|>analysis<|message|>\" in message.content or "
              "\"<|channel|>final<|message|>\" in message.content %}",
              "{%- if false %}");
  replace_all(source,
              "{%- if (message['content'] is none or message['content'] == '' or "
              "message['content']|length == 0) and (message['tool_calls'] is not defined or "
              "message['tool_calls'] is none or message['tool_calls']|length == 0) %}",
              "{%- if false %}");
  return source;
}

std::string token_text(const llama_vocab* vocab, llama_token token) {
  const char* text = token == LLAMA_TOKEN_NULL ? nullptr : llama_vocab_get_text(vocab, token);
  return text == nullptr ? "" : text;
}

// The texts of the tokens that a template may write.
struct OwnTokens {
  std::string begin, end;
};

std::unique_ptr<common_chat_template> read(const std::string& source, const OwnTokens& tokens, std::size_t n_steps) {
  return within(n_steps, "cannot be read", [&] {
    auto one = std::make_unique<common_chat_template>("", tokens.begin, tokens.end);
    one->prog = parse_bounded_template(source);
    one->src = source;
    one->caps = jinja::caps_get(one->prog);
    return one;
  });
}

std::string source_in(const llama_model* model, const char* name) {
  const char* source = llama_model_chat_template(model, name);
  return source == nullptr ? "" : mended(source);
}

}  // namespace

ChatTemplate::ChatTemplate(const llama_model* model, const std::string& source, const TemplateSteps& steps)
    : model_(model), steps_(steps) {
  if (source.empty()) {
    main_source_ = source_in(model, nullptr);
    tool_source_ = source_in(model, "tool_use");
    if (main_source_.empty()) main_source_ = std::exchange(tool_source_, "");
    return;
  }
  const bool is_jinja = source.find("{%") != std::string::npos || source.find("{{") != std::string::npos;
  if (!is_jinja && source != "chatml") {
    throw Error(ErrorCode::kUnsupported, "'" + source.substr(0, 40) +
                                             "' is not a Jinja template: give the text of one, a file with "
                                             "--chat-template-file, or the name chatml");
  }
  main_source_ = is_jinja ? mended(source) : kChatml;
  templates();
}

ChatTemplate::~ChatTemplate() = default;

const common_chat_templates* ChatTemplate::templates() const {
  if (!exists()) {
    throw Error(ErrorCode::kUnsupported,
                "the model file has no chat template: give the whole prompt as text, name a template with "
                "--chat-template-file, or use an instruction-tuned model");
  }
  std::call_once(once_, [this] {
    // libllama-common's log would print to the standard error, from a thread of its own.
    common_log_set_verbosity_thold(-1);
    const llama_vocab* vocab = llama_model_get_vocab(model_);
    const auto read_all = [&](const OwnTokens& tokens) {
      auto all = std::make_unique<common_chat_templates>();
      all->add_bos = llama_vocab_get_add_bos(vocab);
      all->add_eos = llama_vocab_get_add_eos(vocab);
      all->has_explicit_template = true;
      all->template_default = read(main_source_, tokens, steps_.trial);
      if (!tool_source_.empty()) all->template_tool_use = read(tool_source_, tokens, steps_.trial);
      return all;
    };
    try {
      templates_of_calls_ = read_all({});
      templates_ = read_all({token_text(vocab, llama_vocab_bos(vocab)), token_text(vocab, llama_vocab_eos(vocab))});
    } catch (const Error& error) {
      failure_ = error.what();
    }
  });
  if (templates_ == nullptr) throw Error(ErrorCode::kUnsupported, failure_);
  return templates_.get();
}

namespace {

common_chat_msg common_message(const ChatMessage& message) {
  common_chat_msg one;
  one.role = message.role;
  one.content = message.content;
  one.reasoning_content = message.reasoning;
  one.tool_name = message.name;
  one.tool_call_id = message.tool_call_id;
  for (const ChatToolCall& call : message.tool_calls) one.tool_calls.push_back({call.name, call.arguments, call.id});
  return one;
}

std::size_t steps_beyond(std::span<const ChatMessage> messages, const ChatOptions& options) {
  std::size_t n_bytes = 0;
  for (const ChatMessage& message : messages) {
    n_bytes += message.content.size() + message.reasoning.size();
    for (const ChatToolCall& call : message.tool_calls) n_bytes += call.name.size() + call.arguments.size();
  }
  for (const ChatTool& tool : options.tools) n_bytes += tool.description.size() + tool.parameters.size();
  return kStepsOfMessage * (messages.size() + options.tools.size()) + n_bytes / kBytesOfStep;
}

// Returns the template that renders messages with these options.
const common_chat_template& chosen(const common_chat_templates& templates, const ChatOptions& options) {
  const bool is_for_tools = !options.tools.empty() && templates.template_tool_use != nullptr;
  return is_for_tools ? *templates.template_tool_use : *templates.template_default;
}

// Returns whether the template's calls have LFM2's form, name(first="text", second=2), by the marks that
// libllama-common goes by.
bool has_python_calls(const std::string& source) {
  return source.find("<|tool_list_start|>") != std::string::npos ||
         source.find("List of tools: [") != std::string::npos;
}

// Returns whether the template would leave out the text of a message that has thinking: libllama-common gives Mistral's
// templates both as a list, of which those without thinking write the first part.
bool drops_text_behind_thinking(const std::string& source) {
  return source.find("[TOOL_CALLS]") != std::string::npos && source.find("[THINK]") == std::string::npos;
}

common_chat_templates_inputs inputs_of(std::span<const ChatMessage> messages, const ChatOptions& options,
                                       const common_chat_templates* templates) {
  common_chat_templates_inputs inputs;
  inputs.add_bos = templates->add_bos;
  inputs.add_eos = templates->add_eos;
  for (const ChatMessage& message : messages) inputs.messages.push_back(common_message(message));
  inputs.add_generation_prompt = options.add_answer && !options.continues_last;
  if (options.continues_last) inputs.continue_final_message = COMMON_CHAT_CONTINUATION_AUTO;
  for (const ChatTool& tool : options.tools) {
    inputs.tools.push_back({tool.name, tool.description,
                            tool.parameters.empty() ? R"({"type":"object","properties":{}})" : tool.parameters});
  }
  inputs.tool_choice = options.tool_choice == ToolChoice::kAuto   ? COMMON_CHAT_TOOL_CHOICE_AUTO
                       : options.tool_choice == ToolChoice::kNone ? COMMON_CHAT_TOOL_CHOICE_NONE
                                                                  : COMMON_CHAT_TOOL_CHOICE_REQUIRED;
  const common_chat_template& used = chosen(*templates, options);
  if (drops_text_behind_thinking(used.src)) {
    for (common_chat_msg& message : inputs.messages) message.reasoning_content.clear();
  }
  inputs.parallel_tool_calls = options.parallel_tool_calls.value_or(used.caps.supports_parallel_tool_calls);
  inputs.enable_thinking = options.enable_thinking;
  inputs.reasoning_format =
      options.separates_thinking ? COMMON_REASONING_FORMAT_DEEPSEEK : COMMON_REASONING_FORMAT_NONE;
  inputs.chat_template_kwargs = options.arguments;
  return inputs;
}

struct ShownTools {
  std::string text;  // the prompt
  std::vector<std::string> warnings;
};

// Returns the prompt with the tools in it. Many templates know few kinds of schemas and fail at others; then the
// schemas are shown in a simpler form. Some (DeepSeek's) define how tools are called but not how they are shown; then
// the system's message lists them.
ShownTools shown_with_tools(const common_chat_templates* templates, std::span<const ChatMessage> messages,
                            ChatOptions options) {
  options.tool_choice = ToolChoice::kNone;
  ShownTools shown;
  const auto render = [&](std::span<const ChatMessage> all) {
    return common_chat_templates_apply(templates, inputs_of(all, options, templates)).prompt;
  };
  try {
    shown.text = render(messages);
  } catch (const std::exception&) {
    options.tools = with_plain_schemas(options.tools, SchemaUse::kShown);
    shown.text = render(messages);
    shown.warnings.emplace_back(
        "the chat template cannot show the tools' parameters as they are: it shows the model their names, types and "
        "descriptions");
  }
  const auto is_shown = [&](const ChatTool& tool) { return shown.text.find(tool.name) != std::string::npos; };
  if (std::any_of(options.tools.begin(), options.tools.end(), is_shown)) return shown;
  std::string list = "You may call these tools:";
  for (const ChatTool& tool : options.tools) {
    list += "\n- " + tool.name + ": " + tool.description +
            " Parameters: " + (tool.parameters.empty() ? "{}" : tool.parameters);
  }
  std::vector<ChatMessage> more(messages.begin(), messages.end());
  if (more.front().role == "system" || more.front().role == "developer") {
    more.front().content += "\n\n" + list;
  } else {
    more.insert(more.begin(), ChatMessage{"system", list});
  }
  shown.text = render(more);
  shown.warnings.emplace_back("the chat template does not show tools: the system message lists them");
  return shown;
}

// Returns the end of the prompt without the `text` at its end that a client has begun to say. A grammar of calls knows
// nothing of it and begins behind it. The beginning of a call stays, and so does text with which no call may begin.
std::string without_speech(const std::string& prompt, const std::string& text,
                           const common_chat_parser_params& parameters) {
  if (!prompt.ends_with(text) || is_too_deep(prompt)) return prompt;
  try {
    if (common_chat_parse("", true, parameters).content != text) return prompt;
  } catch (const std::exception&) {
    return prompt;
  }
  return prompt.substr(0, prompt.size() - text.size());
}

// Returns the tools with an outline of their schemas: libllama-common's parser needs no more, and has no bounds for
// more.
std::vector<ChatTool> outlined_tools(const common_chat_templates& templates, const ChatOptions& options) {
  const bool is_python = has_python_calls(chosen(templates, options).src);
  return with_plain_schemas(options.tools, is_python ? SchemaUse::kQuotingParser : SchemaUse::kParser);
}

// The prompt that libllama-common makes of messages, and what it knows of their answers.
struct Rendered {
  common_chat_params made;
  bool has_tools = false;
  std::string parser_of_calls;  // separates thinking
  bool is_parallel = false;     // an answer may have several calls
  std::vector<std::string> warnings;
};

// Renders messages with tools. The model is shown the tools as they are; the parser knows them by their outlines.
Rendered rendered_with_tools(const common_chat_templates* all, const common_chat_templates* of_calls,
                             std::span<const ChatMessage> messages, const ChatOptions& options,
                             const std::vector<ChatTool>& outlined, const DistinctNames& names) {
  ShownTools shown = shown_with_tools(all, messages, options);
  ChatOptions plain = options;
  plain.tools = outlined;
  common_chat_templates_inputs inputs = inputs_of(messages, plain, of_calls);
  Rendered rendered{.made = common_chat_templates_apply(of_calls, inputs),
                    .has_tools = true,
                    .is_parallel = inputs.parallel_tool_calls,
                    .warnings = std::move(shown.warnings)};
  rendered.made.prompt = std::move(shown.text);
  rendered.made.parser = names.parser_with_own(rendered.made.parser);
  // Without separation thinking is content, which an answer that has to be a call does not have.
  inputs.reasoning_format = COMMON_REASONING_FORMAT_DEEPSEEK;
  rendered.parser_of_calls = options.separates_thinking
                                 ? rendered.made.parser
                                 : names.parser_with_own(common_chat_templates_apply(of_calls, inputs).parser);
  return rendered;
}

// Returns where in an answer a grammar of calls begins, by what libllama-common made.
GrammarStart grammar_start_of(const common_chat_params& made, const DistinctNames& names) {
  GrammarStart start;
  start.prefix = made.generation_prompt;
  start.thinking_begin = made.thinking_start_tag;
  start.thinking_ends = made.thinking_end_tags;
  for (const common_grammar_trigger& trigger : made.grammar_triggers) {
    (trigger.type == COMMON_GRAMMAR_TRIGGER_TYPE_PATTERN ? start.patterns : start.words)
        .push_back(names.text_with_own(trigger.value));
  }
  return start;
}

// Gives the prompt the grammar to which calls are held.
void hold_to_calls(ChatPrompt& prompt, const Rendered& rendered, const ChatOptions& options) {
  const common_chat_params& made = rendered.made;
  GrammarStart& start = prompt.grammar_start;
  start.is_lazy = options.tool_choice == ToolChoice::kAuto;
  const bool is_in_thoughts =
      !made.thinking_start_tag.empty() && made.generation_prompt.find(made.thinking_start_tag) != std::string::npos;
  const CallForm form{.is_forced = !start.is_lazy,
                      .is_parallel = rendered.is_parallel,
                      .may_think = is_in_thoughts || (made.supports_thinking && options.enable_thinking),
                      .thinking_begin = made.thinking_start_tag};
  CallGrammar grammar = call_grammar(rendered.parser_of_calls, options.tools, form);
  // A template may show tools in a form whose calls libllama-common does not know.
  if (grammar.text.empty()) refuse_tools();
  prompt.grammar = std::move(grammar.text);
  prompt.warnings = std::move(grammar.warnings);
  prompt.warnings.insert(prompt.warnings.end(), rendered.warnings.begin(), rendered.warnings.end());
  if (start.is_lazy && start.words.empty() && !grammar.begins.empty()) start.patterns = std::move(grammar.begins);
}

ChatFormat format_of(const Rendered& rendered, const ChatOptions& options) {
  const common_chat_params& made = rendered.made;
  ChatFormat format{.parameters = common_chat_parser_params(made)};
  format.parameters.reasoning_format =
      options.separates_thinking ? COMMON_REASONING_FORMAT_DEEPSEEK : COMMON_REASONING_FORMAT_NONE;
  format.parameters.is_continuation = options.continues_last;
  format.parameters.parse_tool_calls = rendered.has_tools;
  if (!made.parser.empty()) format.parameters.parser.load(made.parser);
  const bool has_marks = !made.thinking_start_tag.empty() && !made.thinking_end_tags.empty();
  if (rendered.has_tools && !options.separates_thinking && has_marks) {
    format.apart = format.parameters;
    format.apart->reasoning_format = COMMON_REASONING_FORMAT_DEEPSEEK;
    format.apart->parser = {};
    format.apart->parser.load(rendered.parser_of_calls);
    format.thinking_begin = made.thinking_start_tag;
    format.thinking_end = made.thinking_end_tags.front();
  }
  return format;
}

}  // namespace

std::string ChatTemplate::render(std::span<const ChatMessage> messages, bool add_assistant) const {
  return apply(messages, {.add_answer = add_assistant}).text;
}

ChatPrompt ChatTemplate::apply(std::span<const ChatMessage> given, const ChatOptions& options) const {
  if (given.empty()) throw Error(ErrorCode::kInvalidArgument, "a chat needs at least one message");
  std::vector<ChatMessage> mapped;
  if (wants_short_ids(main_source_) || wants_short_ids(tool_source_)) mapped = with_short_ids(given);
  const std::span<const ChatMessage> messages = mapped.empty() ? given : mapped;
  const common_chat_templates* all = templates();
  const bool has_tools = !options.tools.empty() && options.tool_choice != ToolChoice::kNone;
  std::vector<ChatTool> outlined = has_tools ? outlined_tools(*all, options) : std::vector<ChatTool>();
  const DistinctNames names(outlined);  // and gives them such names
  Rendered rendered = within(steps_.rendering + steps_beyond(messages, options), "cannot render these messages", [&] {
    if (has_tools) return rendered_with_tools(all, templates_of_calls_.get(), messages, options, outlined, names);
    return Rendered{.made = common_chat_templates_apply(all, inputs_of(messages, options, all))};
  });
  const common_chat_params& made = rendered.made;
  if (has_tools) {
    const jinja::caps& caps = chosen(*all, options).caps;
    const bool is_held = options.tool_choice == ToolChoice::kAuto || !made.grammar.empty();
    if ((!caps.supports_tools && !caps.supports_tool_calls) || !is_held) refuse_tools();
  }
  ChatPrompt prompt{
      .text = std::move(rendered.made.prompt), .stops = made.additional_stops, .shown_tokens = made.preserved_tokens};
  prompt.grammar_start = grammar_start_of(made, names);
  if (has_tools && !made.parser.empty()) hold_to_calls(prompt, rendered, options);
  if (options.tools.empty() && !(made.supports_thinking && options.separates_thinking)) return prompt;
  auto format = std::make_shared<const ChatFormat>(format_of(rendered, options));
  GrammarStart& start = prompt.grammar_start;
  if (has_tools && !start.is_lazy && options.continues_last) {
    start.prefix = without_speech(start.prefix, messages.back().content, format->parameters);
  }
  prompt.format = std::move(format);
  return prompt;
}

}  // namespace winnow
