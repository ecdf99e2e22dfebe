// The object "kv" of a request: what of the cache to keep, and what of the prompt is shared.
#pragma once

#include <optional>
#include <string>

#include "server/api_request.h"
#include "server/chat_prompt.h"
#include "server/fields.h"

namespace winnow::server {

struct KvFields {
  std::optional<std::string> evict;       // "evict": METHOD[:option=value,...]
  std::optional<std::string> budget;      // "budget": "20%", "5%bytes", "512", "64MiB", "kl=0.02"
  std::optional<std::string> document;    // "context": text that many requests share
  std::optional<bool> is_question_aware;  // "question_aware"
  bool is_kept = true;                    // "keep": for later requests
  Reuse reuse = Reuse::kContinue;         // "reuse": "continue", "exact"; and llama-server's "cache_prompt": false
  bool wants_heads = false;               // "heads": the answer tells what is kept in each of them
};

// Throws ApiError for a field that there is not, and for options that name files.
KvFields parse_kv(const Fields& fields);

// Fills the request's tokens and session options.
//
// Shared and cut without regard to what follows: a document always; else, where nothing is evicted, everything before
// the last user message's text; else that too if it has min_kv_tokens or more. All other prompts are cut as a whole,
// with the question in view, and with "question_aware" every prompt is. Prompts (or contexts) below min_kv_tokens are
// kept whole unless the request itself names a method or a budget.
void apply_kv(const KvFields& kv, const RequestDefaults& defaults, PromptTokens parts, BatchRequest& request);

}  // namespace winnow::server
