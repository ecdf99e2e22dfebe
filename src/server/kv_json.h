// The answers about the server itself: models, tokens, what the cache holds.
#pragma once

#include "server/api_request.h"

namespace winnow::server {

// One entry of /v1/models.
Json model_json(const Model& model, const RequestDefaults& defaults, const std::string& name);
// /v1/kv: memory, kept contexts and running requests with the entries of every head, methods to choose from.
Json kv_json(const Batch& batch, const RequestDefaults& defaults);
// {"content": TEXT, "add_special": false, "parse_special": false} to {"tokens": [...]}
Json tokenize_json(const Model& model, const Json& body);
// {"tokens": [...]} to {"content": TEXT}
Json detokenize_json(const Model& model, const Json& body);

}  // namespace winnow::server
