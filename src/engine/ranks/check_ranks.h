// Checks what the ranks of a pipeline must agree on before they compute together.
#pragma once

#include <vector>

#include "engine/ranks/pipeline.h"
#include "model/model_impl.h"
#include "winnow/session.h"

namespace winnow {

// Returns the layers of every rank; without a pipeline, of one rank that has all. Throws what split_layers throws.
std::vector<LayerRange> layer_ranges(const Model::Impl& model, const EngineOptions& options);

// Returns the largest number of threads of any rank. Throws PipelineError(kInvalidArgument) on all ranks if their
// models or flags differ.
int check_ranks(const Pipeline& pipeline, const Model::Impl& model, const EngineOptions& options);

}  // namespace winnow
