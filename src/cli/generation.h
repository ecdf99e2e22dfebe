// The loop that samples, feeds and shows.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/interrupt.h"
#include "winnow/model.h"
#include "winnow/sampling.h"
#include "winnow/session.h"

namespace winnow::cli {

struct GenerationOptions {
  int max_tokens = -1;           // -1: until the end token or a full context
  bool ignore_end = false;       // never choose an end-of-generation token
  bool feed_last_token = false;  // also the token after which nothing is sampled: a chat goes on behind it
};

enum class StopReason { kEndToken, kMaxTokens, kContextFull, kInterrupted, kOutputClosed };

struct Generation {
  std::vector<Token> tokens;  // without the end token
  std::string text;           // valid UTF-8
  StopReason stop = StopReason::kEndToken;
  std::chrono::steady_clock::time_point first_token_at;  // valid if tokens were sampled
};

// Receives whole characters as they appear; false: nobody reads any more.
using TextCallback = std::function<bool(std::string_view)>;

// Goes on from the logits of the session. A context that fills up ends it without an error.
Generation generate(Session& session, const Model& model, Sampler& sampler, const GenerationOptions& options,
                    const Interrupt& interrupt, const TextCallback& on_text);

}  // namespace winnow::cli
