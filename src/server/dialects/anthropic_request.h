// Translates a request to /v1/messages to the fields of OpenAI's chats.
#pragma once

#include "server/api_request.h"

namespace winnow::server {

// Returns the fields of a body. Throws ApiError(400).
RequestBody translate_messages(Json given);

}  // namespace winnow::server
