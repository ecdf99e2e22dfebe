// Carries out the engine's plans. The engine decides which rows go through which layer, where their keys and values go
// and what is recorded of them, and says so in plain structs; an executor computes, and it alone knows of graphs,
// threads and the bytes of weights. CpuExecutor (engine/cpu) is one; RankedExecutor (engine/ranks) computes with one
// what other machines leave to it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cache/entry_sink.h"
#include "engine/evidence/query_evidence.h"
#include "engine/recurrent_state.h"
#include "model/layer_spec.h"
#include "winnow/layer_view.h"
#include "winnow/model.h"

namespace winnow {

// Rows that follow each other in a sequence and go through a layer together.
struct RowBatch {
  std::int32_t first_row = 0;  // of the pass
  std::int32_t n_rows = 0;
  std::int32_t first_position = 0;
};

// Where a batch's queries are copied to, from its first row on; null: nowhere.
struct QueryCopies {
  float* q = nullptr;            // [n_rows][n_head][key_dim], rotated
  float* log_sum_exp = nullptr;  // [n_rows][n_head]
  float* input_norm = nullptr;   // [n_rows], the L2 norm of what a row brings to the layer
};

// One batch of rows through one layer.
struct LayerPlan {
  int layer = 0;
  RowBatch rows;
  std::span<QueryEvidence* const> recorders = {};  // receive the rows' queries
  QueryCopies copies = {};
  RecurrentState::Update state = {};  // of a recurrent layer: what the rows read and write
};

// The rows of a layer with experts that go through these together.
struct ExpertPlan {
  int layer = 0;
  std::int32_t first_row = 0, n_rows = 0;
};

// Rows that go through some layers.
struct PassPlan {
  LayerRange layers;
  std::int32_t n_rows = 0;
  // Weights are converted as for so many rows: what is compared with a pass of these is multiplied as it was.
  std::int32_t n_converted = 0;
  EntrySink* entries = nullptr;  // keys and values go there, and rows attend to what it shows
};

// The rows of one pass, as their executor holds them: their hidden states, and what layers need beside them.
class PassRows {
 public:
  virtual ~PassRows() = default;

  // The rows from first_row on are of these tokens. Where the pass begins with the model's first layer their hidden
  // states become the tokens' embeddings; else whoever runs the pass fills hidden() before the first layer.
  virtual void embed(std::int32_t first_row, std::span<const Token> tokens) = 0;

  // Norm, Q K V, RoPE, store, attention or recurrence, W_O, residual, feed-forward.
  virtual void run_layer(const LayerPlan& plan) = 0;
  // A layer with experts takes three parts, so that the rows of one expert after the other go through it and its
  // weights are read once for a whole prompt: attention and the router for every batch, then the experts of all rows,
  // some at a time (run_experts returns whether there are more), then the shared expert and the residual.
  virtual void run_attention_and_router(const LayerPlan& plan) = 0;
  virtual void begin_experts(const ExpertPlan& plan) = 0;
  virtual bool run_experts() = 0;
  virtual void combine_experts(const LayerPlan& plan) = 0;

  // [n_rows][n_embd], the residual stream, updated in place.
  virtual std::span<float> hidden() = 0;
  virtual std::size_t bytes() const = 0;
};

// One sequence of a step of decoding.
struct StepSequence {
  RaggedCache* cache;  // extended by the step's entry, which is not yet written
  QueryEvidence* evidence;
  RecurrentState* state;  // to be committed after the step, or discarded
  std::int32_t position;  // of the step's token
};

// One new token of each of several sequences, through all of the executor's layers.
struct DecodePlan {
  std::span<const StepSequence> sequences;
  std::span<const Token> tokens;  // [n_sequences]
};

// Not thread-safe, but for bytes(): the engine's mutex is held.
class Executor {
 public:
  virtual ~Executor() = default;

  // Loops over items on the executor's host threads.
  virtual ParallelFor parallel_for() = 0;

  virtual std::unique_ptr<PassRows> begin_pass(const PassPlan& plan) = 0;
  // Whether a batch's products in such a pass wait for weights that are converted first: then several batches go
  // through a layer before the next one.
  virtual bool converts_weights(std::int32_t n_rows) const = 0;

  // Memory for a step of so many sequences, before anything of it is changed.
  virtual void reserve_step(int n_sequences) = 0;
  // Takes the plan; returns the rows' hidden states [n_sequences][n_embd], embedded if the first layer is here.
  virtual std::span<float> begin_step(const DecodePlan& plan) = 0;
  // Runs the step that was begun. Returns its logits [n_sequences][n_vocab], valid until the next step; nothing where
  // they are made elsewhere.
  virtual std::span<const float> run_step() = 0;
  // The logits of the oldest step whose run_step returned nothing.
  virtual std::vector<float> await_logits(int n_sequences) = 0;
  // Gives back what is kept for the next step.
  virtual void release_step() = 0;

  // Logits [n_rows][n_vocab] of rows of hidden states after the last layer.
  virtual void output_logits(float* hidden, int n_rows, float* out) = 0;
  // The same rows behind the norm that precedes the output, [n_rows][n_embd].
  virtual void output_hidden(float* hidden, int n_rows, float* out) = 0;

  // The slices W_O[h] of a layer, [n_head][value_dim][n_embd].
  virtual std::vector<float> output_projection(int layer) = 0;

  // What graphs take. From any thread.
  virtual std::size_t bytes() const = 0;
};

}  // namespace winnow
