// Feeds a prompt to a session, with a progress bar that Ctrl-C can end, and refuses one that is too long.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "cli/interrupt.h"
#include "winnow/session.h"

namespace winnow::cli {

enum class FeedMode {
  kCut,    // Session::prefill: the cache is cut to its budget
  kAppend  // Session::append: all of it is kept
};

// Feeds the tokens. Returns false if it was interrupted; the session is then as before.
bool feed_prompt(Session& session, std::span<const Token> tokens, FeedMode mode, const Interrupt& interrupt);

// Throws Error(kContextFull) if n_tokens more do not fit.
void check_context(const Session& session, const Model& model, std::size_t n_tokens);

// Throws Error(kContextFull): `what` ("the prompt has ") n_tokens tokens, more than the context of n_ctx.
[[noreturn]] void refuse_length(const Model& model, std::int32_t n_ctx, const std::string& what, std::int64_t n_tokens);

}  // namespace winnow::cli
