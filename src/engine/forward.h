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
#include "engine/forward_plan.h"
#include "engine/suffix_queries.h"
#include "model/layer_spec.h"
#include "winnow/session.h"

namespace winnow {

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
  std::size_t n_sweeps() const { return n_together_ >= layers_.size() ? schedule_.n_sweeps() : 0; }
  bool has_suffixes() const { return schedule_.has_suffixes(); }
  // These describe the next step: they return whether it begins a sweep, whether it is one of the suffixes', and its
  // layer. A pass of layers through which no suffix goes ends when it is at the suffixes.
  bool is_at_sweep() const { return steps_.value().begins_sweep; }
  bool is_at_suffixes() const { return is_through() ? has_suffixes() : steps_.value().is_of_suffixes; }
  int layer() const { return steps_.value().layer; }
  // Returns the tokens that the next step begins to repeat, if it begins a part of the late repeat.
  std::optional<RepeatedPart> next_part() const { return steps_.value().begun_part; }

  std::int64_t work_done() const { return work_done_; }  // layers x rows
  std::int64_t work_total() const { return schedule_.work_total(); }

  // The residual stream [n_rows][n_embd]; after the last step it is what the next range of layers takes.
  std::span<float> hidden() { return rows_->hidden(); }

  // Returns the logits [n_vocab] of the prompt's last row, and calls on_logits, if set, with those of every row. Only
  // after the last step of a range that ends the model.
  std::vector<float> read_logits(const LogitsCallback& on_logits);
  // Calls on_hidden with the hidden state [n_embd] of each of the prompt's rows, after the output norm. Likewise only
  // after the last step.
  void read_hidden(const HiddenCallback& on_hidden);

  // Returns the queries of a layer's suffixes. Valid after the layer's last batch, until the next step.
  SuffixQueries& queries() { return queries_; }
  // Returns whether a layer is one of those before the late repeat.
  bool replays(int layer) const { return schedule_.replays(layer); }
  // Returns the parts of the late repeat.
  std::vector<RepeatedPart> repeated_parts() const { return schedule_.repeated_parts(); }
  // Returns the seconds that the suffixes' rows have taken so far.
  double suffix_s() const { return suffix_s_; }

  std::size_t hidden_bytes() const { return rows_->bytes(); }
  const PassRows& rows() const { return *rows_; }

 private:
  using Batch = RowSchedule::Batch;
  using Visit = RowSchedule::Visit;
  // The next step.
  struct Step {
    int layer = 0;
    bool begins_sweep = false;
    bool is_of_suffixes = false;
    double suffix_share = 0;  // the fraction of its rows that are suffixes'
    std::optional<RepeatedPart> begun_part{};
  };
  Coroutine<Step> run();
  bool has_experts(int layer) const { return spec_.layer(layer).feed_forward.n_expert > 0; }
  // Returns whether a recorder wants the executor to keep the queries of the prompt's rows in a layer.
  bool leaves_rows(int layer) const;
  LayerPlan layer_plan(const Visit& visit, const Batch& batch);
  RecurrentState::Update state_of(int layer, const Batch& batch);
  // Describes a step that takes these batches of a visit together.
  static Step step_of(const Visit& visit, std::span<const Batch> batches);

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
  const RowSchedule schedule_;
  SuffixQueries queries_;
  const std::vector<QueryEvidence*> recorders_;
  RecurrentState& state_;
  std::unique_ptr<PassRows> rows_;
  std::vector<float> suffix_state_;  // of the present suffix and layer
  std::optional<int> ended_;         // the layer that all rows have completed since the last step
  std::int64_t work_done_ = 0;
  double suffix_s_ = 0;
  Coroutine<Step> steps_;
};

}  // namespace winnow
