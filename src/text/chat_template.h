// Chat templates (Jinja), as libllama-common renders them.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "winnow/chat.h"

struct common_chat_templates;
struct llama_model;

namespace winnow {

// The most steps that a template may take. Well-known templates take some hundred steps for a message.
struct TemplateSteps {
  std::size_t trial = 1'000'000;      // trials of its features when it is read, some ten renderings of a short chat
  std::size_t rendering = 2'000'000;  // a rendering with the trials before it; longer chats may take more
};

// A model's chat template. Thread-safe. Since templates come from model files, their cost is bounded
// (template_limits.h).
class ChatTemplate {
 public:
  // Takes a model, which has to outlive it, and the source of a template to use in place of the file's own, or
  // "chatml". An empty source stands for the file's, which is read when it is first used. Throws Error(kUnsupported)
  // for a source that cannot be read.
  ChatTemplate(const llama_model* model, const std::string& source, const TemplateSteps& steps = {});
  ~ChatTemplate();
  ChatTemplate(const ChatTemplate&) = delete;
  ChatTemplate& operator=(const ChatTemplate&) = delete;

  bool exists() const { return !main_source_.empty(); }
  const std::string& source() const { return main_source_; }
  // Both do what Model::apply_chat_template does.
  std::string render(std::span<const ChatMessage> messages, bool add_assistant) const;
  ChatPrompt apply(std::span<const ChatMessage> messages, const ChatOptions& options) const;

 private:
  // Returns the parsed templates. Throws Error(kUnsupported) if there are none that can be read.
  const common_chat_templates* templates() const;

  const llama_model* model_;
  TemplateSteps steps_;
  std::string main_source_, tool_source_;  // the second is a file's own template for tools, or empty
  mutable std::once_flag once_;
  mutable std::unique_ptr<common_chat_templates> templates_;
  // The same with empty begin and end tokens, for parsers of calls: libllama-common finds the marks of a call by
  // comparing texts, and would take an end token behind it for one.
  mutable std::unique_ptr<common_chat_templates> templates_of_calls_;
  mutable std::string failure_;  // the reason if there are none
};

}  // namespace winnow
