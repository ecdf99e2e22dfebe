// Requests to /api/chat and /api/generate in the fields of OpenAI's chats and completions.
#pragma once

#include "server/api_request.h"

namespace winnow::server {

// `given`: a body of /api/chat. Throws ApiError(400).
RequestBody translate_ollama_chat(const Json& given);

// Of /api/generate: a chat of one message, or, with "raw", a completion.
struct OllamaGenerate {
  Endpoint endpoint;
  RequestBody body;
};
OllamaGenerate translate_ollama_generate(const Json& given);

// Whether a body asks for nothing but that the model is loaded, which it always is.
bool is_ollama_load(const Json& body);
// Of such a body: whether it asks that the model goes, which it does not here.
bool is_ollama_unload(const Json& body);

}  // namespace winnow::server
