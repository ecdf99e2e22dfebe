// A request to /v1/messages in the fields of OpenAI's chats.
#pragma once

#include "server/api_request.h"

namespace winnow::server {

// Throws ApiError(400).
RequestBody translate_messages(Json given);

}  // namespace winnow::server
