#include "winnow/generate.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "base/utf8.h"
#include "winnow/session.h"

namespace winnow {
namespace {

// Chooses tokens as the options say: from the logits as before_choice leaves them and, with ignore_end, never an
// end-of-generation token.
class TokenChooser {
 public:
  TokenChooser(const Model& model, Sampler& sampler, const GenerationOptions& options)
      : sampler_(sampler), before_choice_(options.before_choice) {
    if (!options.ignore_end) return;
    for (Token token = 0; token < model.info().n_vocab; ++token) {
      if (model.is_end_of_generation(token)) excluded_.push_back(token);
    }
  }

  // Returns the chosen token, or nullopt if before_choice returns false.
  std::optional<Token> choose(std::span<const float> logits) {
    if (excluded_.empty() && !before_choice_) return sampler_.sample(logits);
    logits_.assign(logits.begin(), logits.end());
    if (before_choice_ && !before_choice_(logits_)) return std::nullopt;
    for (const Token token : excluded_) {
      logits_[static_cast<std::size_t>(token)] = -std::numeric_limits<float>::infinity();
    }
    return sampler_.sample(logits_);
  }

 private:
  Sampler& sampler_;
  std::function<bool(std::span<float>)> before_choice_;
  std::vector<Token> excluded_;
  std::vector<float> logits_;  // [n_vocab]
};

}  // namespace

struct Generator::Impl {
  Impl(Session& the_session, Sampler& sampler, GenerationOptions the_options)
      : session(the_session),
        model(*the_session.model()),
        options(std::move(the_options)),
        stream(options.stops),
        chooser(model, sampler, options),
        goes_on(options.max_tokens != 0) {
    std::sort(options.shown_tokens.begin(), options.shown_tokens.end());
  }

  GenerationStep last_step() {
    text = stream.finish();
    // The tokens ended in the middle of a character: the U+FFFD that stands for its first bytes is left out.
    if (reason == FinishReason::kLength && text.ends_with(kReplacementText)) {
      text.resize(text.size() - kReplacementText.size());
    }
    return {.text = text, .is_last = true, .reason = reason};
  }

  void end(FinishReason why) {
    goes_on = false;
    reason = why;
  }

  // Feeds the token that was shown last, if it is still to be fed. Ends the answer if the context has no room for it.
  void feed() {
    if (!std::exchange(has_token, false) || (!goes_on && !options.feed_last)) return;
    if (session.n_tokens() < session.options().n_ctx) {
      session.decode(token);
    } else if (goes_on) {
      end(FinishReason::kContextFull);
    }
  }

  // Chooses the next token. Returns false, and ends the answer, if there is none.
  bool choose() {
    if (options.is_cancelled && options.is_cancelled()) {
      end(FinishReason::kCancelled);
      return false;
    }
    const std::optional<Token> chosen = chooser.choose(session.logits());
    if (!chosen) {
      end(FinishReason::kStopped);
      return false;
    }
    token = *chosen;
    if (options.ignore_end || !model.is_end_of_generation(token)) return true;
    end(FinishReason::kEndOfText);
    return false;
  }

  GenerationStep show() {
    ++n_tokens;
    has_token = true;
    const bool is_shown = std::binary_search(options.shown_tokens.begin(), options.shown_tokens.end(), token);
    text = stream.add(model.token_text(token, is_shown));
    if (stream.is_stopped()) {
      end(FinishReason::kStopText);
    } else if (n_tokens == options.max_tokens) {
      end(FinishReason::kLength);
    }
    return {.token = token, .text = text};
  }

  Session& session;
  const Model& model;
  GenerationOptions options;
  TextStream stream;
  TokenChooser chooser;
  std::string text;  // text of the step
  Token token = -1;
  bool has_token = false;  // shown, not fed
  bool goes_on;
  int n_tokens = 0;
  FinishReason reason = FinishReason::kLength;
};

Generator::Generator(Session& session, Sampler& sampler, GenerationOptions options)
    : impl_(std::make_unique<Impl>(session, sampler, std::move(options))) {}
Generator::~Generator() = default;
Generator::Generator(Generator&&) noexcept = default;
Generator& Generator::operator=(Generator&&) noexcept = default;

GenerationStep Generator::next() {
  impl_->feed();
  return impl_->goes_on && impl_->choose() ? impl_->show() : impl_->last_step();
}

void Generator::stop() { impl_->end(FinishReason::kStopped); }

GenerationResult generate(Session& session, Sampler& sampler, const GenerationOptions& options,
                          const StepCallback& on_step) {
  Generator generator(session, sampler, options);
  GenerationResult result;
  bool is_reading = true;
  for (bool is_over = false; !is_over;) {
    const GenerationStep step = generator.next();
    is_over = step.is_last;
    if (is_over) {
      result.reason = step.reason;
    } else {
      if (result.tokens.empty()) result.first_token_at = std::chrono::steady_clock::now();
      result.tokens.push_back(step.token);
    }
    result.text += step.text;
    if (!is_reading || !on_step) continue;
    is_reading = on_step(step);
    if (is_reading) continue;
    result.reason = FinishReason::kStopped;
    generator.stop();
  }
  return result;
}

}  // namespace winnow
