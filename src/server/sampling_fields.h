// The fields of a request that say how tokens are chosen.
#pragma once

#include "server/fields.h"
#include "winnow/model.h"
#include "winnow/sampling.h"

namespace winnow::server {

// `sampling`: what holds for a request that says nothing else. Throws ApiError(400), and Error(kInvalidArgument) for
// fields that have no effect beside the others. `warnings` gets what was left out.
SamplingOptions parse_sampling(const Fields& fields, const Model& model, SamplingOptions sampling,
                               std::vector<std::string>& warnings);

}  // namespace winnow::server
