// The sampling parameters of a request.
#pragma once

#include "server/fields.h"
#include "winnow/model.h"
#include "winnow/sampling.h"

namespace winnow::server {

// Returns a request's sampling options. `sampling` has those for a request that does not choose its own. Throws
// ApiError(400) and Error(kInvalidArgument). Adds a sentence to `warnings` for each part that is left out, and for
// fields that have no effect together with the others.
SamplingOptions parse_sampling(const Fields& fields, const Model& model, SamplingOptions sampling,
                               std::vector<std::string>& warnings);

}  // namespace winnow::server
