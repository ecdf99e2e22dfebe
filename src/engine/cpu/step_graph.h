// The graph of one decoding step for a fixed number of sequences, and its memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/cpu/step_attention.h"
#include "model/compute.h"
#include "model/model_impl.h"

namespace winnow {

// The graph of a step and its inputs and outputs.
struct StepGraph {
  StepGraph(const Model::Impl& model, LayerRange layers, int n_sequences, Compute& compute);

  std::size_t bytes() const;

  StepAttention attention;
  Graph graph;
  std::vector<float> hidden;            // [n_sequences][n_embd], before the run and after it
  std::vector<std::int32_t> positions;  // [n_sequences]
  std::vector<std::int32_t> tokens;     // [n_sequences], where layers have a per_layer_embedding_dim
  std::int64_t last_step = 0;           // the last step that used it, counted by the executor
  ggml_tensor* logits = nullptr;        // [n_vocab, n_sequences]; null where the range does not end the model
};

// Returns the most bytes that each sequence adds to a step's graph: activations, logits, partial results of attention.
// Memory that does not depend on their number (nodes, threads' workspaces) is not counted.
std::size_t step_bytes_per_sequence(const ModelInfo& model);

}  // namespace winnow
