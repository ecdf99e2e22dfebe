// Where requests are cut: chats and documents as tokens, what many requests may share before what follows it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "winnow/generate.h"

namespace winnow::server {

// With a document: it goes before the first user message's text, and the context ends behind it. Without: the context
// ends where the last user message's text begins. Throws Error for a model without a chat template, and for a document
// without a user message.
PromptTokens chat_tokens(const Model& model, std::vector<ChatMessage> messages,
                         const std::optional<std::string>& document);

}  // namespace winnow::server
