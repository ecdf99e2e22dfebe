// The chain of libllama's samplers, in the order of the options.
#pragma once

#include <llama.h>

#include <cstdint>
#include <memory>

#include "winnow/model.h"
#include "winnow/sampling.h"

namespace winnow {

struct SamplerDeleter {
  void operator()(llama_sampler* sampler) const { llama_sampler_free(sampler); }
};
using SamplerPointer = std::unique_ptr<llama_sampler, SamplerDeleter>;

// Returns the chain for valid options and the seed in use. Throws Error(kInvalidArgument) for a bias on a token that
// does not exist, Error(kUnsupported) for samplers that read texts if the model has no tokenizer.
SamplerPointer make_chain(const SamplingOptions& options, const Model& model, std::uint32_t seed);

}  // namespace winnow
