#include "cli/generation.h"

#include <limits>
#include <span>

#include "cli/text_output.h"
#include "winnow/error.h"

namespace winnow::cli {
namespace {

class TokenChooser {
 public:
  TokenChooser(const Model& model, Sampler& sampler, bool ignore_end) : sampler_(sampler), ignore_end_(ignore_end) {
    if (!ignore_end) return;
    for (Token token = 0; token < model.info().n_vocab; ++token) {
      if (model.is_end_of_generation(token)) end_tokens_.push_back(token);
    }
  }

  Token choose(std::span<const float> logits) {
    if (!ignore_end_) return sampler_.sample(logits);
    logits_.assign(logits.begin(), logits.end());
    for (const Token token : end_tokens_) {
      logits_[static_cast<std::size_t>(token)] = -std::numeric_limits<float>::infinity();
    }
    return sampler_.sample(logits_);
  }

 private:
  Sampler& sampler_;
  bool ignore_end_;
  std::vector<Token> end_tokens_;
  std::vector<float> logits_;  // [n_vocab]
};

// False when the context has no room for the token.
bool feed(Session& session, Token token) {
  try {
    session.decode(token);
    return true;
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kContextFull) return false;
    throw;
  }
}

}  // namespace

Generation generate(Session& session, const Model& model, Sampler& sampler, const GenerationOptions& options,
                    const Interrupt& interrupt, const TextCallback& on_text) {
  Generation result;
  CharacterAssembler characters;
  bool open = true;
  const auto show = [&](const std::string& text) {
    result.text += text;
    if (!text.empty() && open) open = on_text(text);
  };
  if (options.max_tokens == 0) {
    result.stop = StopReason::kMaxTokens;
    return result;
  }
  TokenChooser chooser(model, sampler, options.ignore_end);
  while (true) {
    if (interrupt.requested()) {
      result.stop = StopReason::kInterrupted;
      break;
    }
    const Token token = chooser.choose(session.logits());
    if (result.tokens.empty()) result.first_token_at = std::chrono::steady_clock::now();
    if (!options.ignore_end && model.is_end_of_generation(token)) {
      result.stop = StopReason::kEndToken;
      break;
    }
    result.tokens.push_back(token);
    show(characters.put(model.token_text(token)));
    if (!open) {
      result.stop = StopReason::kOutputClosed;
      break;
    }
    const bool last = options.max_tokens > 0 && result.tokens.size() >= static_cast<std::size_t>(options.max_tokens);
    if (last) result.stop = StopReason::kMaxTokens;
    if (last && !options.feed_last_token) break;
    if (!feed(session, token)) {
      result.stop = StopReason::kContextFull;
      break;
    }
    if (last) break;
  }
  show(characters.finish());
  if (!open) result.stop = StopReason::kOutputClosed;
  return result;
}

}  // namespace winnow::cli
