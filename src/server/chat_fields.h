// The fields of a chat request that become its prompt: messages, tools, thinking.
#pragma once

#include <string>
#include <vector>

#include "server/fields.h"
#include "winnow/chat.h"

namespace winnow::server {

struct ChatFields {
  std::vector<ChatMessage> messages;
  ChatOptions options;
  std::vector<std::string> warnings;  // parts that were left out
};

// Parses a chat's messages, tools and options. has_grammar: the answer follows a grammar of the request's own, which
// excludes calls and, unless it is asked for, thinking. Throws ApiError(400).
ChatFields parse_chat(const Fields& fields, bool has_grammar);

// Returns the placeholder for a part of this type, which cannot be shown to the model, and adds a warning.
std::string left_out(const std::string& type, std::vector<std::string>& warnings);

}  // namespace winnow::server
