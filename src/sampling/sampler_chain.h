// The chain of libllama's samplers, in the order of the options.
#pragma once

#include <llama-cpp.h>

#include <cstdint>

#include "winnow/model.h"
#include "winnow/sampling.h"

namespace winnow {

// Returns the chain for valid options and the seed in use. Throws Error(kInvalidArgument) for a bias on a token that
// does not exist, Error(kUnsupported) for samplers that read texts if the model has no tokenizer.
llama_sampler_ptr make_chain(const SamplingOptions& options, const Model& model, std::uint32_t seed);

}  // namespace winnow
