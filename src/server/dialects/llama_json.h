// What llama-server tells beside answers: /props, /slots, /apply-template.
#pragma once

#include <string>

#include "server/api_request.h"
#include "winnow/batch.h"

namespace winnow::server {

Json props_json(const Model& model, const RequestDefaults& defaults, const std::string& model_name);
// As many as answers can be given at a time, with the requests that are under way.
Json slots_json(const Batch& batch, const RequestDefaults& defaults);
// The prompt that a body of /v1/chat/completions would become. Throws ApiError, Error.
Json template_json(const Model& model, Json body, const RequestDefaults& defaults);

}  // namespace winnow::server
