// The forward pass of a prompt or turn, layer by layer: all rows pass through layer l in batches before layer l + 1
// begins, so a layer's weights are converted once, and a layer's entries can be cut while no other layer's are held
// whole. forward.cc is the page to read first.
//
// Where the next layers are another rank's, rows can go through several layers before the next rows begin, so that this
// rank waits less. A row is computed in the same batch in either order and sees the same entries, so the bits are the
// same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/coroutine.h"
#include "engine/executor.h"
#include "model/layer_spec.h"
#include "winnow/session.h"

namespace winnow {

// Says from which layer on the prompt's rows go on a second time, beside themselves: with the hidden states that they
// have before that layer, n_part of them at a time at the positions after the prompt's.
struct LateRepeat {
  int first_layer = 0;
  std::int32_t n_part = 0;
};

// Says which rows go through which layers, and in which order.
struct ForwardPlan {
  LayerRange layers;
  std::span<const Token> tokens;
  std::int32_t first_position = 0;
  // KVzip's repeat prompts: rows that go through the layers after the prompt and are not part of the sequence. Each
  // sees the whole prompt and its own earlier rows, at the positions after the prompt's.
  std::span<const std::vector<Token>> suffixes = {};
  // The rows of a late repeat are suffixes from first_layer on. In the layers before it the prompt's own queries are
  // kept, to be shown as the repeat's (reconstruction.h).
  std::optional<LateRepeat> repeat = {};
  std::int32_t n_batch = 512;  // rows that go through a layer at a time
  // Rows go through this many layers before the next rows begin. Suffixes follow layer by layer once the prompt's rows
  // have been through these layers.
  int n_together = 1;
  // Another rank waits for the rows: they go through layers that are taken together a few batches at a time.
  bool is_awaited = false;
  std::int32_t n_converted = 0;  // PassPlan::n_converted; 0: the number of rows
};

// One forward pass, run step by step. Not thread-safe: the engine's mutex is held while a pass is made and while it
// steps. Passes of one engine may take turns batch by batch.
class ForwardPass {
 public:
  // Begins the pass. Keys and values go to the sink, which needs room for the prompt and its longest suffix. `state` is
  // the recurrent state of the rows before the prompt's; the pass moves it on, and the caller commits or discards it
  // afterwards. `recorders` receive the prompt's queries. All must outlive the pass.
  ForwardPass(Executor& executor, const ModelSpec& spec, const ForwardPlan& plan, EntrySink& sink,
              RecurrentState& state, std::vector<QueryEvidence*> recorders);
  ForwardPass(const ForwardPass&) = delete;
  ForwardPass& operator=(const ForwardPass&) = delete;

  // Runs one batch of rows through one layer, or through some of its experts. Returns the layer if all rows are through
  // with it. Must not be called once is_through().
  std::optional<int> step();
  bool is_through() const { return steps_.is_done(); }

  // Returns the number of sweeps (groups of batches that go through all layers before the next group does; the suffixes
  // are the last) where all layers are taken together, else 0.
  std::size_t n_sweeps() const { return n_together_ >= layers_.size() ? sweeps_.size() : 0; }
  bool has_suffixes() const { return n_prompt_batches_ < batches_.size(); }
  // These describe the next step: they return whether it begins a sweep, whether it is one of the suffixes', and its
  // layer. A pass of layers through which no suffix goes ends when it is at the suffixes.
  bool is_at_sweep() const { return steps_.value().begins_sweep; }
  bool is_at_suffixes() const { return is_through() ? has_suffixes() : steps_.value().is_of_suffixes; }
  int layer() const { return steps_.value().layer; }

  std::int64_t work_done() const { return work_done_; }  // layers x rows
  std::int64_t work_total() const;

  // The residual stream [n_rows][n_embd]; after the last step it is what the next range of layers takes.
  std::span<float> hidden() { return rows_->hidden(); }

  // Returns the logits [n_vocab] of the prompt's last row, and calls on_logits, if set, with those of every row. Only
  // after the last step of a range that ends the model.
  std::vector<float> read_logits(const LogitsCallback& on_logits);
  // Calls on_hidden with the hidden state [n_embd] of each of the prompt's rows, after the output norm. Likewise only
  // after the last step.
  void read_hidden(const HiddenCallback& on_hidden);

  // Returns the queries of a layer's suffixes as the policy takes them. Valid after the layer's last batch, until the
  // next step.
  std::vector<ReconstructionPass> reconstruction(int layer) { return passes(layer, false); }
  // Returns the same of the late repeat. In the layers before it these are the prompt's own rows as the prompt read
  // them, until somebody makes a repeat of what replayed() returns.
  std::vector<ReconstructionPass> repeat(int layer) { return passes(layer, true); }
  // Returns whether a layer is one of these.
  bool replays(int layer) const { return repeat_ && layer < repeat_->first_layer; }
  // The queries of many rows of a layer and what is known of them.
  struct Queries {
    // Returns where those of a row begin; null where there are none.
    QueryCopies from(const LayerSpec& spec, std::int32_t row);

    std::vector<float> q;            // [n_rows][n_head][key_dim], rotated; empty where the executor keeps them
    std::vector<float> log_sum_exp;  // [n_rows][n_head]
    std::vector<float> input_norm;   // [n_rows] L2 norms of the residual stream before the layer, or empty
  };
  // Returns the bytes of such queries that are held at most where several layers are taken together.
  static std::size_t replayed_bytes(const ModelSpec& spec, LayerRange layers, const LateRepeat& repeat,
                                    std::int32_t n_tokens);
  Queries& replayed(int layer) { return replayed_[replayed_at(layer)]; }
  // Returns the seconds that the suffixes' rows have taken so far.
  double suffix_s() const { return suffix_s_; }

  std::size_t hidden_bytes() const { return rows_->bytes(); }
  const PassRows& rows() const { return *rows_; }

 private:
  struct Batch {
    RowBatch rows;
    bool is_suffix = false;
    bool begins_part = false;  // the prompt, or a suffix
    bool is_late = false;      // of the late repeat
  };
  struct Suffix {
    std::int32_t first_row, n_rows;
    bool is_late;
  };
  // A range of batches that go through the layers taken together before the next range does.
  struct Sweep {
    std::size_t first, last;
  };
  // The next step.
  struct Step {
    int layer = 0;
    bool begins_sweep = false;
    bool is_of_suffixes = false;
    double suffix_share = 0;  // the fraction of its rows that are suffixes'
  };
  Coroutine<Step> run();
  void add_part(std::int32_t first_row, std::span<const Token> tokens, std::int32_t first_position, bool is_suffix,
                std::int32_t n_batch, bool is_late = false);
  std::vector<Sweep> sweeps(bool is_awaited, bool waits_for_weights) const;
  const LayerSpec& layer_spec(int layer) const { return spec_.layers[static_cast<std::size_t>(layer)]; }
  bool has_experts(int layer) const { return layer_spec(layer).feed_forward.n_expert > 0; }
  std::span<const Batch> batches_of(const Sweep& sweep, int layer) const;
  // Returns whether no later sweep has batches of the layer.
  bool ends_layer(const Sweep& sweep, int layer) const;
  LayerPlan layer_plan(int layer, const Batch& batch);
  RecurrentState::Update state_of(int layer, const Batch& batch);
  // Describes a step that takes these batches together.
  Step next_step(int layer, const Sweep& sweep, std::span<const Batch> batches, bool begins_sweep) const;

  std::vector<ReconstructionPass> passes(int layer, bool is_late);
  QueryCopies suffix_copies(const LayerSpec& spec, std::int32_t first_row);
  // Makes room for the queries of the prompt's rows in the layers before the late repeat.
  void reserve_replayed();
  std::size_t replayed_at(int layer) const {
    return n_together_ > 1 ? static_cast<std::size_t>(layer - layers_.first) : 0;
  }

  using Output = void (Executor::*)(float* hidden, int n_rows, float* out);
  // Calls on_row with the output [width] of each of the prompt's rows, computed some rows at a time.
  void read_rows(Output output, std::size_t width,
                 const std::function<void(std::int32_t position, std::span<const float>)>& on_row);
  float* row(std::int32_t r) { return rows_->hidden().data() + std::int64_t{r} * spec_.n_embd; }

  Executor& executor_;
  const ModelSpec& spec_;
  const LayerRange layers_;
  const int n_together_;
  const std::int32_t n_tokens_;  // of the prompt
  const std::int32_t first_position_;
  std::int32_t n_rows_;  // with the suffixes
  const std::vector<QueryEvidence*> recorders_;
  RecurrentState& state_;
  const std::optional<LateRepeat> repeat_;
  std::vector<Batch> batches_;  // of one layer: the prompt's, then the suffixes', those of the late repeat last
  std::size_t n_prompt_batches_ = 0, n_early_batches_ = 0;  // the second: without those of the late repeat
  std::int32_t first_repeated_ = 0;                         // row of the late repeat
  std::vector<Suffix> suffixes_;
  std::vector<Sweep> sweeps_;
  std::unique_ptr<PassRows> rows_;
  std::vector<float> suffix_state_;  // of the present suffix and layer
  Queries suffix_queries_;           // of the suffixes in the present layer
  std::vector<Queries> replayed_;    // of the prompt's rows: in the present layer, or in each that is taken together
  std::optional<int> ended_;         // the layer that all rows have completed since the last step
  std::int64_t work_done_ = 0;
  double suffix_s_ = 0;
  Coroutine<Step> steps_;
};

}  // namespace winnow
