// The output projection as scorers read it.
#pragma once

#include <vector>

#include "model/model_impl.h"
#include "winnow/layer_view.h"

namespace winnow {

// Returns the slices W_O[h] of a layer, [n_head][value_dim][n_embd]: the file's matrix [n_embd rows][n_head *
// value_dim], transposed.
std::vector<float> output_projection_slices(const Model::Impl& model, int layer, const ParallelFor& parallel_for);

}  // namespace winnow
