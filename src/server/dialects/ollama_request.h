// Translates requests to /api/chat and /api/generate to the fields of OpenAI's chats and completions.
#pragma once

#include "server/api_request.h"

namespace winnow::server {

// Returns the fields of a body of /api/chat. Throws ApiError(400).
RequestBody translate_ollama_chat(const Json& given);

// A request to /api/generate: a chat of one message or, with "raw" or a suffix, a completion.
struct OllamaGenerate {
  Endpoint endpoint;
  RequestBody body;
};
OllamaGenerate translate_ollama_generate(const Json& given);

// Returns true if a body only asks that the model be loaded, which it always is.
bool is_ollama_load(const Json& body);
// Returns true if such a body asks that the model be unloaded, which this server does not do.
bool is_ollama_unload(const Json& body);

}  // namespace winnow::server
