// libllama's samplers in the order that the options ask for.
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

// `options` are valid. `seed`: the one in use. Throws Error(kInvalidArgument) for a bias of a token that there is not,
// Error(kUnsupported) for samplers that read texts where the model has no tokenizer.
SamplerPointer make_chain(const SamplingOptions& options, const Model& model, std::uint32_t seed);

}  // namespace winnow
