// JSON about the server itself: models, tokens, the contents of the cache.
#pragma once

#include "server/api_request.h"

namespace winnow::server {

// Returns one entry of /v1/models.
Json model_json(const Model& model, const RequestDefaults& defaults, const std::string& name);
// Returns the answer of /v1/kv: memory, kept contexts and running requests with the entries of every head, and methods
// to choose from.
Json kv_json(const Batch& batch, const RequestDefaults& defaults);
// Returns {"tokens": [...]} for {"content": TEXT, "add_special": false, "parse_special": true, "with_pieces": false}.
Json tokenize_json(const Model& model, const Json& body);
// Returns {"content": TEXT} for {"tokens": [...]}.
Json detokenize_json(const Model& model, const Json& body);

}  // namespace winnow::server
