// Translates a request to /v1/responses to the fields of OpenAI's chats.
#pragma once

#include "server/api_request.h"
#include "server/dialects/response_store.h"

namespace winnow::server {

struct ResponsesRequest {
  RequestBody body;
  Json messages;  // the conversation so far, without the instructions
  Json given;     // the fields that the answer repeats
  bool is_stored = true;
};

// Returns the translated request. Throws ApiError(400), and ApiError(404) for a previous response that is not in the
// store.
ResponsesRequest translate_responses(Json body, ResponseStore& store);

}  // namespace winnow::server
