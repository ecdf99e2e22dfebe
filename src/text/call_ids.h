// Ids of calls for the templates that want nine letters and digits (Mistral Nemo's and those after it).
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "winnow/chat.h"

namespace winnow {

// Whether a template's source refuses other ids.
bool wants_short_ids(std::string_view source);

// The messages with such ids: one that is none is mapped to the same one wherever it stands; a call without an id gets
// one, and so does the answer without an id that comes next behind it.
std::vector<ChatMessage> with_short_ids(std::span<const ChatMessage> messages);

}  // namespace winnow
