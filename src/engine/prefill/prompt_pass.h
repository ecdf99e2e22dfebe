// Sends the rows of one prompt or turn through the model, layer by layer: layer l's weights are converted once, then
// all rows pass through it in batches before layer l + 1 begins. In a layer with experts all rows pass through
// attention first, then through the experts (expert_pass.h), then through what comes after these.
//
// Where the next layers are another rank's, which would wait, rows can go through several layers before the rows behind
// them begin with the first of these. A row is computed in the same batch in either order, and sees the same entries:
// the bits are the same.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "cache/entry_sink.h"
#include "cache/mapped_memory.h"
#include "engine/engine_impl.h"
#include "engine/prefill/expert_pass.h"
#include "engine/prefill/rows_attention.h"

namespace winnow {

// Not thread-safe; the engine's mutex is held while one is made and while it steps. Passes of one engine may take turns
// batch by batch.
class PromptPass {
 public:
  // Through these layers: from the first of the model on the pass embeds the tokens; from any other on rows come batch
  // by batch from the rank before, or, in an engine that has all layers, whoever runs the pass fills hidden() before
  // the first step. A batch goes to the next rank as soon as it is through the last layer, while others are still to
  // come. tokens: from first_position on. `state`: of the rows before them; it moves on by the pass and is to be
  // committed after it, or discarded. Keys and values go to the sink, whose room begin_rows has to find. `recorders`
  // receive the queries. `followers`: rows behind the prompt that go through the layers beside it and are not part of
  // the sequence (KVzip's reconstruction): each part sees the whole prompt and its own earlier rows, at the positions
  // after the prompt's; the sink has room for the longest.
  PromptPass(Engine::Impl& engine, LayerRange layers, EntrySink& sink, RecurrentState& state,
             std::span<const Token> tokens, std::int32_t first_position, std::vector<QueryEvidence*> recorders,
             std::span<const std::vector<Token>> followers = {});

  // Weights are converted as for a pass of n_rows rows: what is compared with such a pass is multiplied as it was.
  void convert_as(std::int32_t n_rows) { n_converted_ = n_rows; }
  // Before the first step: so many layers at a time are taken together, and the next so many after them. Followers go
  // through them layer by layer when the prompt's rows are through. The sink keeps what it has of all of them.
  void take_together(int n_layers);

  // Runs one batch of rows through one layer, or through some of its experts; not once is_through(). Returns the layer
  // if all rows are through with it.
  std::optional<int> step();
  bool is_through() const { return layer_ == layers_.last; }

  // Where all layers are taken together: parts of the work that follow each other, each through all of them; 0: they
  // are not. What follows the prompt is the last.
  std::size_t n_sweeps() const { return n_together_ >= layers_.size() ? sweeps_.size() : 0; }
  // One is about to begin.
  bool is_at_sweep() const { return layer_ == layers_.first && stage_ == Stage::kLayer && batch_ == first_batch(); }
  bool is_at_followers() const { return sweeps_[sweep_].first > 0 && sweeps_[sweep_].first == n_prompt_batches_; }
  int layer() const { return layer_; }  // the present one

  std::int64_t work_done() const { return work_done_; }  // layers x rows
  std::int64_t work_total() const;

  // [n_rows][n_embd], the residual stream, updated in place: after the last step what the next range takes.
  std::span<float> hidden();

  // After the last step of a range that ends the model: the logits [n_vocab] of the prompt's last row; every row's go
  // to the callback, if there is one.
  std::vector<float> read_logits(const LogitsCallback& on_logits);
  // Likewise: the hidden states [n_embd] of all of the prompt's rows, behind the last norm.
  void read_hidden(const HiddenCallback& on_hidden);

  // Queries of a layer's followers, as the policy takes them: after the layer's last batch, until the next
  // step.
  std::vector<ReconstructionPass> reconstruction(int layer) const;
  // What the followers' rows took so far.
  double follower_s() const { return follower_s_; }

  std::size_t hidden_bytes() const { return hidden_.bytes() + (experts_ ? experts_->bytes() : 0); }

 private:
  // Rows that follow each other in the sequence.
  struct Part {
    std::int32_t first_row;  // in the hidden states
    std::int32_t n_rows;
    std::int32_t first_position;
    bool is_follower;
  };
  struct Batch {
    int part;
    std::int32_t first_row;  // in the part
    std::int32_t n_rows;
  };
  // Batches that go through layers that are taken together before the next ones do.
  struct Sweep {
    std::size_t first, last;
  };
  struct Rows {
    std::int32_t first, last;
  };
  void add_part(const Part& part, std::span<const Token> tokens);
  Rows rows_of(std::size_t first_batch, std::size_t last_batch) const;
  RecurrentState::Update state_of(int layer, const Batch& batch);
  enum class Stage { kLayer, kExperts, kAfterExperts };  // the last two: of layers with experts
  bool has_experts(int layer) const;
  // What follows the prompt ends before the layers that attend to another's entries: its own are no longer there.
  std::size_t n_batches(int layer) const;
  // Of the present sweep and layer.
  std::size_t first_batch() const { return std::min(sweeps_[sweep_].first, n_batches(layer_)); }
  std::size_t last_batch() const { return std::min(sweeps_[sweep_].last, n_batches(layer_)); }
  // The present sweep is through the present layer.
  void go_on();
  void begin_attention(int layer, const Batch& batch);
  void run_batch(int layer, const Batch& batch);
  using Output = void (Engine::Impl::*)(float* hidden, int n_rows, float* out);
  // All rows of the prompt, [width] each, some at a time.
  void read_rows(Output output, std::size_t width,
                 const std::function<void(std::int32_t position, std::span<const float>)>& on_row);
  float* row(std::int32_t r);

  Engine::Impl& engine_;
  const LayerRange layers_;
  std::vector<std::int32_t> tokens_;  // [n_rows], where layers have a token_width
  std::int32_t n_tokens_;             // of the prompt
  std::int32_t first_position_;
  std::int32_t n_rows_;  // with the followers
  std::int32_t n_converted_;
  std::vector<QueryEvidence*> recorders_;
  RecurrentState& state_;
  std::vector<float> follower_state_;  // of the present part and layer
  MappedMemory hidden_;                // [n_rows][n_embd] float32
  std::vector<float> follower_q_;      // [n_rows - n_tokens][n_head][key_dim] of the present layer, rotated
  std::vector<float> follower_sums_;   // [n_rows - n_tokens][n_head] their log-sum-exps
  std::vector<float> follower_norms_;  // [n_rows - n_tokens] L2 norms of what they bring to the layer
  RowsAttention attention_;
  std::optional<ExpertPass> experts_;  // of the present layer; where layers have experts
  std::vector<Part> parts_;
  std::vector<Batch> batches_;  // of one layer, the prompt's first
  std::size_t n_prompt_batches_ = 0;
  std::vector<Sweep> sweeps_;
  int n_together_ = 1;  // layers
  int layer_;
  std::size_t sweep_ = 0;
  Stage stage_ = Stage::kLayer;
  std::size_t batch_ = 0;
  std::int64_t work_done_ = 0;
  double follower_s_ = 0;
};

}  // namespace winnow
