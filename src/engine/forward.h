// The forward pass of a prompt or turn, layer by layer: all rows pass through layer l in batches before layer l + 1
// begins, so that a layer's weights are converted once, and a layer's entries can be cut while it is the only one that
// is held whole. forward.cc is the page to read first.
//
// Where the next layers are another rank's, which would wait, rows can go through several layers before the rows behind
// them begin with the first of these. A row is computed in the same batch in either order, and sees the same entries:
// the bits are the same.
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

// Which rows go through which layers, and in which order.
struct ForwardPlan {
  LayerRange layers;
  std::span<const Token> tokens;
  std::int32_t first_position = 0;
  // KVzip's repeat prompts: rows behind the prompt that go through the layers beside it and are not part of the
  // sequence. Each sees the whole prompt and its own earlier rows, at the positions after the prompt's.
  std::span<const std::vector<Token>> suffixes = {};
  std::int32_t n_batch = 512;  // rows that go through a layer at a time
  // So many layers at a time are taken together, and the next so many after them. Suffixes go through them layer by
  // layer when the prompt's rows are through.
  int n_together = 1;
  // Another rank waits for the rows: they go through layers that are taken together a few batches at a time.
  bool is_awaited = false;
  std::int32_t n_converted = 0;  // PassPlan's; 0: as many as there are rows
};

// Not thread-safe; the engine's mutex is held while one is made and while it steps. Passes of one engine may take turns
// batch by batch.
class ForwardPass {
 public:
  // Keys and values go to the sink, whose room begin_rows has to find: that of the longest suffix behind the prompt's.
  // `state`: of the rows before the prompt's; it moves on by the pass and is to be committed after it, or discarded.
  // `recorders` receive the prompt's queries. All must outlive the pass.
  ForwardPass(Executor& executor, const ModelSpec& spec, const ForwardPlan& plan, EntrySink& sink,
              RecurrentState& state, std::vector<QueryEvidence*> recorders);
  ForwardPass(const ForwardPass&) = delete;
  ForwardPass& operator=(const ForwardPass&) = delete;

  // Runs one batch of rows through one layer, or through some of its experts; not once is_through(). Returns the layer
  // if all rows are through with it.
  std::optional<int> step();
  bool is_through() const { return steps_.is_done(); }

  // Where all layers are taken together: parts of the work that follow each other, each through all of them; 0: they
  // are not. The suffixes are the last.
  std::size_t n_sweeps() const { return n_together_ >= layers_.size() ? sweeps_.size() : 0; }
  // Of the next step: whether it begins a sweep, or is one of the suffixes' own; its layer.
  bool is_at_sweep() const { return steps_.value().begins_sweep; }
  bool is_at_suffixes() const { return steps_.value().is_of_suffixes; }
  int layer() const { return steps_.value().layer; }

  std::int64_t work_done() const { return work_done_; }  // layers x rows
  std::int64_t work_total() const;

  // [n_rows][n_embd], the residual stream: after the last step what the next range of layers takes.
  std::span<float> hidden() { return rows_->hidden(); }

  // After the last step of a range that ends the model: the logits [n_vocab] of the prompt's last row; every row's go
  // to the callback, if there is one.
  std::vector<float> read_logits(const LogitsCallback& on_logits);
  // Likewise: the hidden states [n_embd] of all of the prompt's rows, behind the last norm.
  void read_hidden(const HiddenCallback& on_hidden);

  // Queries of a layer's suffixes, as the policy takes them: after the layer's last batch, until the next step.
  std::vector<ReconstructionPass> reconstruction(int layer) const;
  // What the suffixes' rows took so far.
  double suffix_s() const { return suffix_s_; }

  std::size_t hidden_bytes() const { return rows_->bytes(); }

 private:
  struct Batch {
    RowBatch rows;
    bool is_suffix = false;
    bool begins_part = false;  // the prompt, or a suffix
  };
  struct Suffix {
    std::int32_t first_row, n_rows;
  };
  // Batches that go through layers that are taken together before the next ones do.
  struct Sweep {
    std::size_t first, last;
  };
  // What comes next.
  struct Step {
    int layer = 0;
    bool begins_sweep = false;
    bool is_of_suffixes = false;
    double suffix_share = 0;  // of its rows
  };
  Coroutine<Step> run();
  void add_part(std::int32_t first_row, std::span<const Token> tokens, std::int32_t first_position, bool is_suffix,
                std::int32_t n_batch);
  std::vector<Sweep> sweeps(bool is_awaited, bool waits_for_weights) const;
  const LayerSpec& layer_spec(int layer) const { return spec_.layers[static_cast<std::size_t>(layer)]; }
  bool has_experts(int layer) const { return layer_spec(layer).feed_forward.n_expert > 0; }
  std::span<const Batch> batches_of(const Sweep& sweep, int layer) const;
  LayerPlan layer_plan(int layer, const Batch& batch);
  RecurrentState::Update state_of(int layer, const Batch& batch);
  // Of these batches together.
  Step next_step(int layer, const Sweep& sweep, std::span<const Batch> batches, bool begins_sweep) const;

  using Output = void (Executor::*)(float* hidden, int n_rows, float* out);
  // All rows of the prompt, [width] each, some at a time.
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
  std::vector<Batch> batches_;  // of one layer, the prompt's first
  std::size_t n_prompt_batches_ = 0;
  std::vector<Suffix> suffixes_;
  std::vector<Sweep> sweeps_;
  std::unique_ptr<PassRows> rows_;
  std::vector<float> suffix_state_;  // of the present suffix and layer
  std::vector<float> suffix_q_;      // [n_rows - n_tokens][n_head][key_dim] of the present layer, rotated
  std::vector<float> suffix_sums_;   // [n_rows - n_tokens][n_head] their log-sum-exps
  std::vector<float> suffix_norms_;  // [n_rows - n_tokens] L2 norms of what they bring to the layer
  std::optional<int> ended_;         // the layer that all rows are through with since the last step
  std::int64_t work_done_ = 0;
  double suffix_s_ = 0;
  Coroutine<Step> steps_;
};

}  // namespace winnow
