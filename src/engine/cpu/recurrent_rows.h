// The graph node of a recurrent layer, for rows of one sequence or for one row of each of several.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/recurrent_state.h"
#include "model/compute.h"
#include "model/model_impl.h"

struct ggml_context;
struct ggml_tensor;

namespace winnow {

// The arguments of one layer's node, set before every run of the graph; must outlive the graph.
struct RecurrentRows {
  struct Sequence {
    RecurrentState::Update state;
    std::int64_t first_row = 0, n_rows = 0;
  };
  const LayerSpec* spec = nullptr;
  const LayerWeights* weights = nullptr;
  Compute* compute = nullptr;
  std::vector<Sequence> sequences;
};

// Adds the node of a recurrent step; inputs and result are those of SequenceHook::recur.
ggml_tensor* recurrent_node(ggml_context* context, RecurrentRows& rows, RecurrentStep step,
                            std::span<ggml_tensor* const> inputs);

}  // namespace winnow
