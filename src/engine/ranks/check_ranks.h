// What the ranks of a pipeline have to agree on before they compute together.
#pragma once

#include <vector>

#include "engine/ranks/pipeline.h"
#include "model/model_impl.h"
#include "winnow/session.h"

namespace winnow {

// The layers of every rank; of one that has all, where there is no pipeline. Throws what split_layers does.
std::vector<LayerRange> layer_ranges(const Model::Impl& model, const EngineOptions& options);

// Throws Error(kInvalidArgument) on a rank that has another model, or other flags, than this one. Returns the threads
// of the rank that has most.
int check_ranks(const Pipeline& pipeline, const Model::Impl& model, const EngineOptions& options);

}  // namespace winnow
