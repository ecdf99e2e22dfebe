#include "winnow/generate.h"

#include <limits>
#include <utility>

#include "winnow/session.h"

namespace winnow {
namespace {

// Chooses tokens, where wanted never one that ends the answer.
class TokenChooser {
 public:
  TokenChooser(const Model& model, Sampler& sampler, bool ignore_end) : sampler_(sampler) {
    if (!ignore_end) return;
    for (Token token = 0; token < model.info().n_vocab; ++token) {
      if (model.is_end_of_generation(token)) excluded_.push_back(token);
    }
  }

  Token choose(std::span<const float> logits) {
    if (excluded_.empty()) return sampler_.sample(logits);
    logits_.assign(logits.begin(), logits.end());
    for (const Token token : excluded_) {
      logits_[static_cast<std::size_t>(token)] = -std::numeric_limits<float>::infinity();
    }
    return sampler_.sample(logits_);
  }

 private:
  Sampler& sampler_;
  std::vector<Token> excluded_;
  std::vector<float> logits_;  // [n_vocab]
};

// Shows what a step brings, and remembers that nobody reads any more.
class Reader {
 public:
  Reader(const StepCallback& on_step, std::string& text) : on_step_(on_step), text_(text) {}

  void show(const GenerationStep& step) {
    text_ += step.text;
    if (is_reading_ && on_step_) is_reading_ = on_step_(step);
  }
  bool is_reading() const { return is_reading_; }

 private:
  const StepCallback& on_step_;
  std::string& text_;
  bool is_reading_ = true;
};

}  // namespace

GenerationResult generate(Session& session, Sampler& sampler, const GenerationOptions& options,
                          const StepCallback& on_step) {
  const Model& model = *session.model();
  GenerationResult result;
  TextStream stream(options.stops);
  Reader reader(on_step, result.text);
  TokenChooser chooser(model, sampler, options.ignore_end);

  // Chooses and shows a token. Whether the answer goes on behind it; else result.reason says why not.
  const auto take_token = [&](Token token) {
    result.tokens.push_back(token);
    const std::string text = stream.add(model.token_text(token));
    reader.show({.token = token, .text = text});
    if (!reader.is_reading()) {
      result.reason = FinishReason::kStopped;
    } else if (stream.is_stopped()) {
      result.reason = FinishReason::kStopText;
    } else if (options.max_tokens >= 0 && result.tokens.size() >= static_cast<std::size_t>(options.max_tokens)) {
      result.reason = FinishReason::kLength;
    } else {
      return true;
    }
    return false;
  };

  bool goes_on = options.max_tokens != 0;
  if (!goes_on) result.reason = FinishReason::kLength;
  while (goes_on) {
    if (options.is_cancelled && options.is_cancelled()) {
      result.reason = FinishReason::kCancelled;
      break;
    }
    const Token token = chooser.choose(session.logits());
    if (result.tokens.empty()) result.first_token_at = std::chrono::steady_clock::now();
    if (!options.ignore_end && model.is_end_of_generation(token)) {
      result.reason = FinishReason::kEndOfText;
      break;
    }
    goes_on = take_token(token);
    if (!goes_on && !options.feed_last) break;
    if (session.n_tokens() >= session.options().n_ctx) {
      result.reason = goes_on ? FinishReason::kContextFull : result.reason;
      break;
    }
    session.decode(token);
  }
  const std::string rest = stream.finish();
  reader.show({.text = rest, .is_last = true, .reason = result.reason});
  if (!reader.is_reading()) result.reason = FinishReason::kStopped;
  return result;
}

}  // namespace winnow
