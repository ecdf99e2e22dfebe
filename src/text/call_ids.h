// Ids of tool calls for templates that accept only nine letters and digits (Mistral Nemo's and its successors').
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "winnow/chat.h"

namespace winnow {

// Returns true if a template's source refuses other ids.
bool wants_short_ids(std::string_view source);

// Returns the messages with such ids. A longer or shorter id is mapped to the same short one wherever it occurs. A call
// without an id gets one, and the next tool's answer without an id gets the same.
std::vector<ChatMessage> with_short_ids(std::span<const ChatMessage> messages);

}  // namespace winnow
