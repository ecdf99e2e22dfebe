// Where requests are cut: chats and documents as tokens, what many requests may share before what follows it.
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

// With a document: it goes before the first user message's text, and the context ends behind it. Without: the context
// ends where the last user message's text begins. Throws Error for a model without a chat template, and for a document
// without a user message.
// Throws Error(kContextFull) before the template is applied to a chat that cannot fit `n_ctx` tokens.
// What the template says of the answer goes into the request: its grammar, its format, texts that end it.
PromptTokens chat_tokens(const Model& model, ChatFields chat, const std::optional<std::string>& document,
                         std::int32_t n_ctx, ApiRequest& request);

// Throws Error(kContextFull) for so many bytes of text, before they are read, where they cannot fit `n_ctx` tokens.
void check_bytes(const Model& model, std::size_t n_bytes, std::int32_t n_ctx);

}  // namespace winnow::server
