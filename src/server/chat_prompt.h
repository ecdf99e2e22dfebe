// Chats and documents as tokens, in two parts: what many requests may share, and what follows it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "winnow/model.h"

namespace winnow::server {

struct PromptParts {
  std::vector<Token> context;  // may be empty
  std::vector<Token> rest;     // never empty
};

// With a document: it goes before the first user message's text, and the context ends behind it. Without: the context
// ends where the last user message's text begins. Throws Error for a model without a chat template, and for a document
// without a user message.
PromptParts chat_parts(const Model& model, std::vector<ChatMessage> messages,
                       const std::optional<std::string>& document);

// A document (or nothing) and a prompt, as they are.
PromptParts text_parts(const Model& model, const std::string& document, const std::string& prompt);

}  // namespace winnow::server
