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
};

// `parameters`: of the tools, in the order of their text. has_grammar: the answer follows a grammar of the request's
// own, which excludes tools and, unless it is asked for, thinking. Throws ApiError(400).
ChatFields parse_chat(const Fields& fields, const std::vector<OrderedJson>& parameters, bool has_grammar);

}  // namespace winnow::server
