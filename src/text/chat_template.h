// A model's chat template: Jinja, as libllama-common renders it.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "winnow/chat.h"
#include "winnow/model.h"

struct common_chat_templates;
struct llama_model;

namespace winnow {

// What a template may take: a message of the well-known ones takes some hundred steps.
struct TemplateSteps {
  std::size_t trial = 1'000'000;      // of what it can do, when it is read: some ten renderings of a short chat
  std::size_t rendering = 2'000'000;  // and the trials that go before it; more for a longer chat
};

// Thread-safe. Templates come from model files: what one may cost is bounded (template_limits.h).
class ChatTemplate {
 public:
  // `model` has to outlive it. `source`: a template instead of the file's own, or "chatml"; empty: the file's, which is
  // read when it is first used. Throws Error(kUnsupported) for a source that cannot be read.
  ChatTemplate(const llama_model* model, const std::string& source, const TemplateSteps& steps = {});
  ~ChatTemplate();
  ChatTemplate(const ChatTemplate&) = delete;
  ChatTemplate& operator=(const ChatTemplate&) = delete;

  bool exists() const { return !main_source_.empty(); }
  const std::string& source() const { return main_source_; }
  // As Model::apply_chat_template.
  std::string render(std::span<const ChatMessage> messages, bool add_assistant) const;
  ChatPrompt apply(std::span<const ChatMessage> messages, const ChatOptions& options) const;

 private:
  // Throws Error(kUnsupported).
  const common_chat_templates* templates() const;

  const llama_model* model_;
  TemplateSteps steps_;
  std::string main_source_, tool_source_;  // the second: where a file has one of its own for tools
  mutable std::once_flag once_;
  mutable std::unique_ptr<common_chat_templates> templates_;
  mutable std::string failure_;  // why there are none
};

}  // namespace winnow
