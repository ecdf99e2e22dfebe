#include "eval/run/prompt.h"

#include <algorithm>
#include <cctype>
#include <span>
#include <utility>

#include "base/utf8.h"
#include "eval/run/answer.h"
#include "eval/run/decoding.h"
#include "winnow/error.h"
#include "winnow/generate.h"

namespace winnow::eval {
namespace {

bool ends_with_space(const std::string& text) {
  return text.empty() || std::isspace(static_cast<unsigned char>(text.back())) != 0;
}

}  // namespace

PromptBuilder::PromptBuilder(std::shared_ptr<const Model> model, bool use_chat_template, std::int32_t n_ctx)
    : model_(std::move(model)), use_chat_template_(use_chat_template), n_ctx_(n_ctx) {
  if (!use_chat_template_) return;
  const SplitPrompt first = split_chat(*model_, "", "", "");
  before_ = first.before;
  after_ = first.after;
  // The template after an answer, up to where the next message's text begins.
  const std::string mark = "<winnow-next-message>";
  const std::string turn = chat_turn(*model_, mark);
  between_ = turn.substr(0, turn.find(mark));
}

std::int64_t PromptBuilder::count(const std::string& text, bool with_template) const {
  return static_cast<std::int64_t>(model_->tokenize(text, with_template, with_template).size());
}

std::string PromptBuilder::shortened(const std::string& text, std::int64_t room, bool& is_truncated) const {
  const std::vector<Token> tokens = model_->tokenize(text, false, false);
  if (static_cast<std::int64_t>(tokens.size()) <= room) return text;
  const std::int64_t half = room / 2;
  if (half < 1) {
    throw Error(ErrorCode::kContextFull, "question and answer leave no room for the text in a context of " +
                                             std::to_string(n_ctx_) + " tokens: raise -c or use a model with more");
  }
  is_truncated = true;
  const std::span<const Token> all(tokens);
  return valid_utf8(model_->detokenize(all.first(static_cast<std::size_t>(half)))) +
         valid_utf8(model_->detokenize(all.last(static_cast<std::size_t>(half))));
}

Prompt PromptBuilder::whole(const Sample& sample, std::size_t turn_index) const {
  const Turn& turn = sample.turns.at(turn_index);
  const bool wrapped = is_wrapped(sample);
  const bool is_behind = wrapped && sample.prefix_behind_header;
  const std::string behind = is_behind ? turn.answer_prefix : "";
  std::int64_t room = n_ctx_ - turn.max_new - count(wrapped ? before_ + after_ : "", true) - count(behind, false);
  if (is_multi_turn(sample)) {
    for (std::size_t later = 1; later < sample.turns.size(); ++later) {
      room -= sample.turns[later].max_new;
      room -= static_cast<std::int64_t>(follow_up(sample, later).size());
    }
  }
  Prompt prompt;
  const std::string text =
      shortened(sample.context + turn.question + (is_behind ? "" : turn.answer_prefix), room, prompt.is_truncated);
  prompt.tokens = model_->tokenize(wrapped ? before_ + text + after_ + behind : text, true, wrapped);
  return prompt;
}

Prompt PromptBuilder::context(const Sample& sample) const {
  const bool wrapped = is_wrapped(sample);
  std::int64_t most_after = 0;
  for (std::size_t turn = 0; turn < sample.turns.size(); ++turn) {
    const std::int64_t n_question = static_cast<std::int64_t>(question(sample, turn).size());
    most_after = std::max(most_after, n_question + sample.turns[turn].max_new);
  }
  const std::string head = wrapped ? before_ : "";
  Prompt prompt;
  const std::string text = shortened(sample.context, n_ctx_ - most_after - count(head, true), prompt.is_truncated);
  prompt.tokens = model_->tokenize(head + text, true, wrapped);
  return prompt;
}

std::vector<Token> PromptBuilder::question(const Sample& sample, std::size_t turn_index) const {
  const Turn& turn = sample.turns.at(turn_index);
  const bool wrapped = is_wrapped(sample);
  return model_->tokenize(turn.question + (wrapped ? after_ : "") + turn.answer_prefix, false, wrapped);
}

std::vector<Token> PromptBuilder::follow_up(const Sample& sample, std::size_t turn_index) const {
  const Turn& turn = sample.turns.at(turn_index);
  if (!is_wrapped(sample)) return model_->tokenize(turn.follow_up, false, false);
  const Turn& before = sample.turns.at(turn_index - 1);
  const std::string answer = before.references.empty() ? "" : before.references.front();
  return model_->tokenize(answer + between_ + turn.question + turn.answer_prefix + after_, false, true);
}

PromptBuilder::Continued PromptBuilder::continued(const Sample& sample) const {
  const Turn& turn = sample.turns.at(0);
  if (turn.references.empty()) throw Error(ErrorCode::kBadFile, "the sample has no continuation");
  const std::vector<Token> text = model_->tokenize(sample.context, true, false);
  const std::vector<Token> all = model_->tokenize(sample.context + turn.references.front(), true, false);
  if (all.size() < text.size() + 2) throw Error(ErrorCode::kBadFile, "the continuation has fewer than two tokens");
  const auto split = all.begin() + static_cast<std::ptrdiff_t>(text.size());
  Continued continued{{all.begin(), split}, {split, all.end()}};
  const std::size_t wanted = turn.max_new > 0 ? static_cast<std::size_t>(turn.max_new) : kContinuationTokens;
  continued.n_feed = std::min(wanted, continued.continuation.size());
  const std::size_t n_all = text.size() + continued.n_feed;
  if (n_all > static_cast<std::size_t>(n_ctx_)) {
    throw Error(ErrorCode::kContextFull, "text and continuation have " + std::to_string(n_all) +
                                             " tokens, more than the context of " + std::to_string(n_ctx_) +
                                             ": raise -c or give shorter --lengths");
  }
  return continued;
}

std::vector<Token> PromptBuilder::reference(const Sample& sample, std::size_t turn_index, QuestionMode mode) const {
  const Turn& turn = sample.turns.at(turn_index);
  if (turn.references.empty() || turn.references.front().empty()) return {};
  // The model sees the assistant's header last, or the end of the prompt's own text.
  const bool prefix_is_last =
      !turn.answer_prefix.empty() && (mode == QuestionMode::kAgnostic || sample.prefix_behind_header);
  const bool header_is_last = is_wrapped(sample) && !prefix_is_last;
  const std::string last = header_is_last ? after_ : sample.context + turn.question + turn.answer_prefix;
  const bool needs_space = !ends_with_space(last) && !adds_space(*model_);
  return model_->tokenize((needs_space ? " " : "") + turn.references.front(), false, false);
}

std::int32_t PromptBuilder::template_tokens() const { return static_cast<std::int32_t>(count(before_ + after_, true)); }

}  // namespace winnow::eval
