// The sampler of a session's next answer.
#pragma once

#include <memory>

#include "winnow/sampling.h"
#include "winnow/session.h"

namespace winnow::cli {

// Returns a sampler that knows the session's tokens as far as its penalties look back.
Sampler make_sampler(std::shared_ptr<const Model> model, const SamplingOptions& options, const Session& session);

}  // namespace winnow::cli
