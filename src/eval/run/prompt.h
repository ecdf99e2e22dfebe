// Turns a sample's texts into tokens: wraps them in the model's chat template, splits them before the question, and
// shortens them in the middle to fit the context. The rules are those of docs/evaluation.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "eval/run/work_item.h"
#include "winnow/model.h"

namespace winnow::eval {

struct Prompt {
  std::vector<Token> tokens;
  bool is_truncated = false;
};

// Default length of a continuation, and most tokens of an answer of the full cache.
inline constexpr std::size_t kContinuationTokens = 64;

// Thread-safe.
class PromptBuilder {
 public:
  // n_ctx is the most tokens of prompt and answer together. Throws Error(kUnsupported) if a chat template is asked for
  // and the model has none that can be used.
  PromptBuilder(std::shared_ptr<const Model> model, bool use_chat_template, std::int32_t n_ctx);

  // Returns the question-aware prompt: everything up to where the answer begins. Throws Error(kContextFull) if there is
  // no room.
  Prompt whole(const Sample& sample, std::size_t turn) const;

  // Returns the question-agnostic prompt: the text before any question, short enough for every turn of the sample.
  Prompt context(const Sample& sample) const;
  // Returns the tokens that follow it for a turn, never cut; empty if a turn has no text of its own and no template.
  std::vector<Token> question(const Sample& sample, std::size_t turn) const;

  // Returns the tokens to append before `turn`, from 1, is answered, if the turns share one cache (SCBench's multi-turn
  // mode); the turn before is answered by its reference.
  std::vector<Token> follow_up(const Sample& sample, std::size_t turn) const;

  // A text and its continuation, split where the text ends.
  struct Continued {
    std::vector<Token> text, continuation;
    std::size_t n_feed = 0;  // tokens of the continuation that are fed
  };
  // Throws Error(kContextFull) if the context does not hold the text and what is fed of its continuation.
  Continued continued(const Sample& sample) const;

  // Returns the first reference as the model would continue with it after this turn's prompt; empty if there is none.
  std::vector<Token> reference(const Sample& sample, std::size_t turn, QuestionMode mode) const;

  // Returns the number of tokens that the chat template and the begin token add to a prompt.
  std::int32_t template_tokens() const;

  bool uses_chat_template() const { return use_chat_template_; }

 private:
  bool is_wrapped(const Sample& sample) const { return use_chat_template_ && sample.chat_template; }
  // Returns the text without its middle if it exceeds `room` tokens.
  std::string shortened(const std::string& text, std::int64_t room, bool& is_truncated) const;
  std::int64_t count(const std::string& text, bool with_template) const;

  std::shared_ptr<const Model> model_;
  bool use_chat_template_;
  std::int32_t n_ctx_;
  std::string before_, after_;  // template around a user's first message
  std::string between_;         // template from an assistant's answer to the user's next message
};

}  // namespace winnow::eval
