// The seam to libllama-common: with template_limits.cc the only place that includes its headers. They promise no stable
// interface: scripts/setup.sh takes them from the sources that the library was built from, and
// tests/model/chat_template_test.cc fails where the two do not fit.
#include "model/chat_template.h"

#include <chat.h>
#include <ggml-backend.h>
#include <llama.h>
#include <log.h>

#include <mutex>
#include <utility>

#include "model/template_limits.h"
#include "winnow/error.h"

// As in libllama-common's chat.cpp, whose functions take a pointer to it: its own way to make one runs the template
// before it can be bounded.
struct common_chat_templates {
  bool add_bos;
  bool add_eos;
  bool has_explicit_template;
  std::unique_ptr<common_chat_template> template_default;
  std::unique_ptr<common_chat_template> template_tool_use;
};

namespace winnow {
namespace {

// libllama-common.so does not say where the libggml.so that it needs lies: with a reference of our own the loader looks
// beside the others.
[[gnu::used]] const auto kNeedsLibggml = &ggml_backend_reg_count;

// Of trying out what a template can do, when it is read: some ten renderings of a short chat.
constexpr std::size_t kTrialSteps = 1'000'000;
// Of a rendering, and of the trials that go before it: a message of the well-known templates takes some hundred steps.
constexpr std::size_t kSteps = 2'000'000, kStepsOfMessage = 1'000;
constexpr std::size_t kBytesOfStep = 8;

constexpr const char* kChatml =
    "{%- for message in messages -%}{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' -}}"
    "{%- endfor -%}{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}";

[[noreturn]] void refuse(const std::string& what) {
  throw Error(ErrorCode::kUnsupported,
              "the chat template " + what + ": name another with --chat-template-file, or give the prompt as text");
}

// The interpreter's errors have several lines: where, the source there, and at last "Error: " and what.
std::string reason_of(const std::string& text) {
  constexpr std::string_view kLead = "Error: ";
  const std::size_t at = text.rfind(kLead);
  std::string reason = at == std::string::npos ? text : text.substr(at + kLead.size());
  while (!reason.empty() && (reason.back() == '\n' || reason.back() == '.')) reason.pop_back();
  constexpr std::size_t kMostReason = 300;
  return reason.substr(0, kMostReason);
}

// Runs libllama-common's code on a budget. What it throws becomes Error(kUnsupported), with `what` before the reason.
template <typename Work>
auto within(std::size_t n_steps, const std::string& what, Work work) {
  TemplateBudget budget(n_steps);
  try {
    return work();
  } catch (const TemplateLimit& limit) {
    refuse(limit.reason);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    refuse(what + ": " + reason_of(error.what()));
  }
}

void replace_all(std::string& text, const std::string& what, const std::string& with) {
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += with.size()) {
    text.replace(at, what.size(), with);
  }
}

// Two templates refuse messages that are whole, as common_chat_templates_init knows.
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

std::unique_ptr<common_chat_template> read(const std::string& source, const llama_vocab* vocab) {
  return within(kTrialSteps, "cannot be read", [&] {
    auto one = std::make_unique<common_chat_template>("", token_text(vocab, llama_vocab_bos(vocab)),
                                                      token_text(vocab, llama_vocab_eos(vocab)));
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

ChatTemplate::ChatTemplate(const llama_model* model, const std::string& source) : model_(model) {
  if (source.empty()) {
    main_source_ = source_in(model, nullptr);
    tool_source_ = source_in(model, "tool_use");
    if (main_source_.empty()) main_source_ = std::exchange(tool_source_, "");
    return;
  }
  const bool is_jinja = source.find("{%") != std::string::npos || source.find("{{") != std::string::npos;
  if (!is_jinja && source != "chatml") {
    throw Error(ErrorCode::kUnsupported, "'" + source.substr(0, 40) +
                                             "' is no Jinja template: give the text of one, a file with "
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
    // It would print to the standard error, from a thread of its own.
    common_log_set_verbosity_thold(-1);
    const llama_vocab* vocab = llama_model_get_vocab(model_);
    auto all = std::make_unique<common_chat_templates>();
    all->add_bos = llama_vocab_get_add_bos(vocab);
    all->add_eos = llama_vocab_get_add_eos(vocab);
    all->has_explicit_template = true;
    try {
      all->template_default = read(main_source_, vocab);
      if (!tool_source_.empty()) all->template_tool_use = read(tool_source_, vocab);
      templates_ = std::move(all);
    } catch (const Error& error) {
      failure_ = error.what();
    }
  });
  if (templates_ == nullptr) throw Error(ErrorCode::kUnsupported, failure_);
  return templates_.get();
}

std::string ChatTemplate::render(std::span<const ChatMessage> messages, bool add_assistant) const {
  if (messages.empty()) throw Error(ErrorCode::kInvalidArgument, "a chat needs at least one message");
  common_chat_templates_inputs inputs;
  inputs.add_generation_prompt = add_assistant;
  std::size_t n_steps = kSteps;
  for (const ChatMessage& message : messages) {
    common_chat_msg& one = inputs.messages.emplace_back();
    one.role = message.role;
    one.content = message.content;
    n_steps += kStepsOfMessage + message.content.size() / kBytesOfStep;
  }
  return within(n_steps, "cannot render these messages",
                [&, all = templates()] { return common_chat_templates_apply(all, inputs).prompt; });
}

}  // namespace winnow
