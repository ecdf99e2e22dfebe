// An Executor carries out the engine's plans. The engine decides which rows go through which layer, where their keys
// and values go and what is recorded of them, as plain structs; the executor computes, and it alone knows of graphs,
// threads and devices. CpuExecutor (engine/cpu) and DeviceExecutor (engine/device) are two; RankedExecutor
// (engine/ranks) adds the layers that other machines hold.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cache/entry_sink.h"
#include "engine/evidence/query_evidence.h"
#include "engine/recurrent_state.h"
#include "eviction/evidence/entry_statistics.h"
#include "model/layer_spec.h"
#include "winnow/error.h"
#include "winnow/layer_view.h"
#include "winnow/model.h"

namespace winnow {

// Consecutive rows of a sequence that go through a layer together.
struct RowBatch {
  std::int32_t first_row = 0;  // of the pass
  std::int32_t n_rows = 0;
  std::int32_t first_position = 0;
};

// The buffers that a batch's queries are copied to, from its first row on; null: they are not.
struct QueryCopies {
  float* q = nullptr;            // [n_rows][n_head][key_dim], rotated
  float* log_sum_exp = nullptr;  // [n_rows][n_head]
  float* input_norm = nullptr;   // [n_rows], the L2 norm of the residual stream before the layer
};

// A batch of rows to be run through one layer.
struct LayerPlan {
  int layer = 0;
  RowBatch rows;
  std::span<QueryEvidence* const> recorders = {};  // receive the rows' queries
  std::int32_t recorded_end = 0;                   // one more than the last position that they receive in this pass
  QueryCopies copies = {};
  bool keeps_queries = false;         // the executor keeps the rotated queries until the layer is through
  RecurrentState::Update state = {};  // in a recurrent layer: what the rows read and write
  std::int32_t copied_to = -1;  // the row from which on the rows' hidden states before the layer are copied; -1: none
  bool begins_here = false;     // the rows are such copies: they have gone through no layer before
  bool is_output_read = true;   // somebody reads the rows' hidden states after the layer

  // Returns whether somebody reads the log-sum-exps of rows from a position on.
  bool wants_sums(std::int32_t position) const {
    return copies.log_sum_exp != nullptr || std::any_of(recorders.begin(), recorders.end(), [&](QueryEvidence* e) {
             return e->log_sum_exp_row(layer, position) != nullptr;
           });
  }
  // Returns whether somebody reads the moments of the unrotated queries.
  bool wants_moments() const {
    return std::any_of(recorders.begin(), recorders.end(),
                       [&](const QueryEvidence* e) { return e->wants_moments(layer); });
  }
};

// The rows that go through the experts of a layer together.
struct ExpertPlan {
  int layer = 0;
  std::int32_t first_row = 0, n_rows = 0;
};

// A pass of rows through a range of layers.
struct PassPlan {
  LayerRange layers;
  std::int32_t n_rows = 0;
  // The number of rows that decides which weights are converted. Passes whose results are compared give the same one,
  // so their products are taken alike.
  std::int32_t n_converted = 0;
  EntrySink* entries = nullptr;  // receives keys and values; rows attend to what it shows
};

// The rows of one pass as their executor holds them: their hidden states, and what layers need in addition.
class PassRows {
 public:
  virtual ~PassRows() = default;

  // Sets the tokens of the rows from first_row on. In a pass that begins with the model's first layer their hidden
  // states become the tokens' embeddings; otherwise the caller fills hidden() before the first layer.
  virtual void embed(std::int32_t first_row, std::span<const Token> tokens) = 0;

  // Runs a batch through a layer: norm, Q K V, RoPE, store, attention or recurrence, W_O, residual, feed-forward. What
  // follows attention may be left out where nobody reads the output.
  virtual void run_layer(const LayerPlan& plan) = 0;
  // Returns whether a layer with experts runs in three parts instead, so that each expert's weights are read once for a
  // whole prompt: attention and the router for every batch; the experts for all rows, some at a time (run_experts
  // returns whether there are more); the shared expert and the residual for every batch.
  virtual bool splits_experts() const { return false; }
  virtual void run_attention_and_router(const LayerPlan& /*plan*/) { refuse_parts(); }
  virtual void begin_experts(const ExpertPlan& /*plan*/) { refuse_parts(); }
  virtual bool run_experts() { refuse_parts(); }
  virtual void combine_experts(const LayerPlan& /*plan*/) { refuse_parts(); }

  // Returns the residual stream [n_rows][n_embd], which layers update in place.
  virtual std::span<float> hidden() = 0;
  virtual std::size_t bytes() const = 0;

 private:
  [[noreturn]] static void refuse_parts() {
    throw Error(ErrorCode::kInternal, "a layer with experts was split for an executor that runs it in one part");
  }
};

// One sequence in a step of decoding.
struct StepSequence {
  RaggedCache* cache;  // already extended by the step's entry, whose bytes are not yet written
  QueryEvidence* evidence;
  RecurrentState* state;  // committed by the caller after the step, or discarded
  std::int32_t position;  // of the step's token
};

// A step of decoding: one new token of each of several sequences, through all of the executor's layers.
struct DecodePlan {
  std::span<const StepSequence> sequences;
  std::span<const Token> tokens;  // [n_sequences]
};

// The stored entries of a layer, as the processor's kernels and as a device's walk them.
struct LayerEntries {
  int layer;
  const CacheShape* shape;  // in which they are stored
  const PassRows* pass;     // that may have kept the layer's queries; or null
  const float* key_scales;  // LayerView::key_scales
  std::span<const kernels::HeadEntries> heads;
  std::vector<HeadRows> rows;
};

// Computes what the engine plans. Not thread-safe, except bytes(): the engine's mutex is held.
class Executor {
 public:
  virtual ~Executor() = default;

  // Returns a function that runs a loop over items on the executor's host threads.
  virtual ParallelFor parallel_for() = 0;

  // Makes the rows of a pass, of which none is set yet.
  virtual std::unique_ptr<PassRows> begin_pass(const PassPlan& plan) = 0;
  // Returns whether a pass of n_rows rows converts weights before it multiplies; several batches then go through a
  // layer before the next layer begins.
  virtual bool converts_weights(std::int32_t n_rows) const = 0;

  // Takes the memory for a step of n_sequences sequences, before anything is changed.
  virtual void reserve_step(int n_sequences) = 0;
  // Begins a step of the sequences that were reserved. Returns the rows' hidden states [n_sequences][n_embd], embedded
  // if the model's first layer is here.
  virtual std::span<float> begin_step(const DecodePlan& plan) = 0;
  // Runs the step that was begun. Returns its logits [n_sequences][n_vocab], valid until the next step, or nothing
  // where another executor makes them.
  virtual std::span<const float> run_step() = 0;
  // Waits for and returns the logits of the oldest step whose run_step returned nothing. Throws Error(kInternal) where
  // run_step always returns them.
  virtual std::vector<float> await_logits(int /*n_sequences*/) {
    throw Error(ErrorCode::kInternal, "logits are expected from layers that do not end the model");
  }
  // Frees what is kept for the next step.
  virtual void release_step() = 0;

  // Computes the logits [n_rows][n_vocab] of hidden states [n_rows][n_embd] after the last layer, which stay as they
  // are.
  virtual void output_logits(float* hidden, int n_rows, float* out) = 0;
  // Computes the output norm of the same rows, [n_rows][n_embd].
  virtual void output_hidden(float* hidden, int n_rows, float* out) = 0;

  // Returns the slices W_O[h] of a layer, [n_head][value_dim][n_embd].
  virtual std::vector<float> output_projection(int layer) = 0;

  // Returns whether passes keep queries that they are told to keep (LayerPlan), for entry_statistics().
  virtual bool keeps_queries() const { return false; }
  // Returns what measures entries where they lie; null where the processor can read them.
  virtual std::unique_ptr<EntryStatistics> entry_statistics(LayerEntries /*entries*/) { return nullptr; }

  // Returns the number of layers whose weights are copied to where they are computed whenever they are used.
  virtual int n_streamed_layers() const { return 0; }
  // Returns the bytes of graphs. May be called from any thread.
  virtual std::size_t bytes() const = 0;
};

}  // namespace winnow
