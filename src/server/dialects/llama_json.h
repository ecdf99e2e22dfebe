// llama-server's routes besides answers: /props, /slots, /apply-template.
#pragma once

#include <string>

#include "server/api_request.h"
#include "winnow/batch.h"

namespace winnow::server {

Json props_json(const Model& model, const RequestDefaults& defaults, const std::string& model_name);
// Returns a slot for each request under way, and idle ones up to the number of answers that can be given at a time.
Json slots_json(const Batch& batch, const RequestDefaults& defaults);
// Returns the prompt that a body of /v1/chat/completions would become. Throws ApiError, Error.
Json template_json(const Model& model, Json body, const RequestDefaults& defaults);

}  // namespace winnow::server
