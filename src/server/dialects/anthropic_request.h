// A request to /v1/messages in the fields of OpenAI's chats.
#pragma once

#include <string>
#include <vector>

#include "server/api_request.h"

namespace winnow::server {

// `text` is the body. warnings: of what is passed over. Throws ApiError(400).
RequestBody translate_messages(const std::string& text, std::vector<std::string>& warnings);

}  // namespace winnow::server
