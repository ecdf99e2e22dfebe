// Tokenises chats and documents in two parts: the context, which many requests may share, and what follows it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "server/api_request.h"
#include "server/chat_fields.h"
#include "winnow/generate.h"

namespace winnow::server {

// Returns the tokens of a chat. A document goes before the first user message's text, and the context ends after it.
// Without a document, the context ends where the last user message's text begins. The template's settings of the answer
// go into the request: its grammar, its format, texts that end it. Throws Error for a model without a chat template and
// for a document without a user message, and context_full() for a chat that cannot fit `n_ctx` tokens: before the
// template is applied if its texts are too long for that, and before the result is tokenised in any case.
PromptTokens chat_tokens(const Model& model, ChatFields chat, const std::optional<std::string>& document,
                         std::int32_t n_ctx, ApiRequest& request);

// Throws context_full() if a text of this many bytes, which is not read yet, cannot fit `n_ctx` tokens. `field`: the
// client's name of the field with the text.
void check_bytes(const Model& model, std::size_t n_bytes, std::int32_t n_ctx, const std::string& field);
// Throws context_full() if one of the request's prompts leaves no room in `n_ctx` tokens for an answer's first one.
void check_tokens(const ApiRequest& request, std::int32_t n_ctx);

}  // namespace winnow::server
