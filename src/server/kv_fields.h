// The object "kv" of a request: how the KV cache is compressed, and which part of the prompt is shared.
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
  bool wants_heads = false;               // "heads": the answer says how many entries each head keeps
};

// Throws ApiError for an unknown field, and for options that name files.
KvFields parse_kv(const Fields& fields);

// Fills the request's tokens and session options.
//
// The context is shared, and cut without regard to what follows: a document always; without one, everything before the
// last user message's text if it has 32 tokens or more and, where entries are evicted, min_kv_tokens or more. All other
// prompts are cut as a whole, with the question in view. "question_aware" overrides this: every prompt is cut as a
// whole (true), or every context by itself (false). Prompts (or contexts) below min_kv_tokens are kept whole unless the
// request itself names a method or a budget.
//   ends_with_question: prompts that are cut as a whole end with what is to be answered, as chats do, unless
//   "question_aware" says otherwise
void apply_kv(const KvFields& kv, const RequestDefaults& defaults, PromptTokens parts, bool ends_with_question,
              BatchRequest& request);

}  // namespace winnow::server
