#include "cli/feed_prompt.h"

#include <cmath>

#include "cli/number_text.h"
#include "cli/progress_bar.h"
#include "winnow/error.h"

namespace winnow::cli {

bool feed_prompt(Session& session, std::span<const Token> tokens, FeedMode mode, const Interrupt& interrupt) {
  const std::string all = count_text(static_cast<std::int64_t>(tokens.size())) + " tokens";
  ProgressBar bar("prefill " + all);
  PrefillOptions options;
  options.on_progress = [&](std::int64_t done, std::int64_t total) {
    const double n_through =
        static_cast<double>(tokens.size()) * static_cast<double>(done) / static_cast<double>(total);
    bar.update(done, total, count_text(std::llround(n_through)) + " of " + all + " through the layers");
    return !interrupt.requested();
  };
  try {
    if (mode == FeedMode::kCut) {
      session.prefill(tokens, options);
    } else {
      session.append(tokens, options);
    }
    return true;
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kCancelled) return false;
    throw;
  }
}

void refuse_length(const Model& model, std::int32_t n_ctx, const std::string& what, std::int64_t n_tokens) {
  const std::int32_t n_trained = model.info().n_ctx_train;
  const std::string trained = "(the model was trained on " + count_text(n_trained) + ")";
  throw Error(ErrorCode::kContextFull,
              what + count_text(n_tokens) + " tokens, more than the context of " + count_text(n_ctx) + ": " +
                  (n_tokens <= n_trained ? "raise -c " + trained + " or shorten it" : "shorten it " + trained));
}

void check_context(const Session& session, const Model& model, std::size_t n_tokens) {
  const std::int32_t n_ctx = session.options().n_ctx > 0 ? session.options().n_ctx : model.info().n_ctx_train;
  const auto needed = static_cast<std::int64_t>(n_tokens) + session.n_tokens();
  if (needed <= n_ctx) return;
  refuse_length(model, n_ctx, session.n_tokens() > 0 ? "the conversation has " : "the prompt has ", needed);
}

}  // namespace winnow::cli
