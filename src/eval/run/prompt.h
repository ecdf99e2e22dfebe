// A sample's texts as tokens: wrapped in the model's chat template, cut in two before the question, and shortened in
// the middle to what the context holds. The rules are those of docs/evaluation.md.
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

// Thread-safe.
class PromptBuilder {
 public:
  // n_ctx: most tokens of prompt and answer together. Throws Error(kUnsupported) if the model has no chat template that
  // can be used and one is asked for.
  PromptBuilder(std::shared_ptr<const Model> model, bool use_chat_template, std::int32_t n_ctx);

  // Question-aware: everything up to where the answer begins. Throws Error(kContextFull) if there is no room.
  Prompt whole(const Sample& sample, std::size_t turn) const;

  // Question-agnostic: what is known before any question, short enough for every turn of the sample.
  Prompt context(const Sample& sample) const;
  // What follows it for a turn, never cut; empty if a turn has no text of its own and no template.
  std::vector<Token> question(const Sample& sample, std::size_t turn) const;

  // Several turns that go on with one cache (SCBench's multi-turn mode): what is appended before answering `turn`, from
  // 1, the turn before being answered by its reference.
  std::vector<Token> follow_up(const Sample& sample, std::size_t turn) const;

  // The text and its continuation, split where the text ends.
  struct Continued {
    std::vector<Token> text, continuation;
  };
  Continued continued(const Sample& sample) const;

  // The first reference as the model would go on with it after this turn's prompt; empty if there is none.
  std::vector<Token> reference(const Sample& sample, std::size_t turn, QuestionMode mode) const;

  // What the chat template and the begin token add to a prompt.
  std::int32_t template_tokens() const;

  bool uses_chat_template() const { return use_chat_template_; }

 private:
  bool is_wrapped(const Sample& sample) const { return use_chat_template_ && sample.chat_template; }
  // Shortens `text` to at most `room` tokens.
  std::string shortened(const std::string& text, std::int64_t room, bool& is_truncated) const;
  std::int64_t count(const std::string& text, bool with_template) const;

  std::shared_ptr<const Model> model_;
  bool use_chat_template_;
  std::int32_t n_ctx_;
  std::string before_, after_;  // the template around a user's first message
  std::string between_;         // around an assistant's answer: up to the user's next message
};

}  // namespace winnow::eval
