// A ForwardPlan says which rows go through which layers; the RowSchedule made of it has their batches, in the order in
// which they go. Both are plain data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/executor.h"
#include "model/layer_spec.h"
#include "winnow/model.h"

namespace winnow {

// Says from which layer on the prompt's rows go on a second time, beside themselves: with the hidden states that they
// have before that layer, n_part of them at a time at the positions after the prompt's. They look what they repeat up
// within n_near tokens of it.
struct LateRepeat {
  int first_layer = 0;
  std::int32_t n_part = 0;
  std::int32_t n_near = 0;
};

// The positions of the tokens that rows of a late repeat repeat together, [first, end), and of those near them.
struct RepeatedPart {
  std::int32_t first, end;
  std::int32_t near_first, near_end;
};

// Says which rows go through which layers, and how many of them at a time.
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
  bool reads_all_rows = true;    // the prompt's rows are read after the last layer; else only the last one

  std::int32_t n_tokens() const { return static_cast<std::int32_t>(tokens.size()); }
  // Returns the number of rows: the prompt's, the suffixes', and those of the late repeat.
  std::int32_t n_rows() const;
};

// The batches of rows that go through the layers, in order: the prompt's, then the suffixes', those of a late repeat
// last. Immutable.
class RowSchedule {
 public:
  struct Batch {
    RowBatch rows;
    bool is_suffix = false;
    bool begins_part = false;  // the prompt, or a suffix
    bool is_late = false;      // of the late repeat
  };
  struct Suffix {
    std::int32_t first_row = 0, n_rows = 0;
    std::optional<RepeatedPart> repeated{};  // by a late one
  };
  // Consecutive batches that go through one layer, one after the other.
  struct Visit {
    int layer = 0;
    std::span<const Batch> batches;  // at least one
    std::span<const Batch> read;  // those of them whose hidden states somebody reads afterwards: in the last layer few
    bool begins_sweep = false;    // a group of batches that goes through the layers taken together before the next does
    bool ends_layer = false;      // no later visit is the layer's

    bool is_of_suffixes() const { return batches.front().is_suffix; }
    // Returns whether somebody reads the hidden states of one of the batches.
    bool reads(const Batch& batch) const { return !read.empty() && &read.front() <= &batch && &batch <= &read.back(); }
  };

  // Sweeps have several batches if they wait for weights, which are converted, or read as experts, once a sweep.
  RowSchedule(const ForwardPlan& plan, const ModelSpec& spec, bool waits_for_weights);
  RowSchedule(const RowSchedule&) = delete;  // visits refer to the batches
  RowSchedule& operator=(const RowSchedule&) = delete;

  // Returns the whole pass in order.
  std::span<const Visit> visits() const { return visits_; }
  // Returns the number of sweeps, those without a row of these layers included: all ranks count alike.
  std::size_t n_sweeps() const { return n_sweeps_; }
  std::span<const Suffix> suffixes() const { return suffixes_; }
  bool has_suffixes() const { return n_prompt_batches_ < batches_.size(); }
  // Returns whether a layer is one of those before the late repeat, or the one that it begins with.
  bool replays(int layer) const { return repeat_ && layer < repeat_->first_layer; }
  bool begins_repeat(int layer) const { return repeat_ && layer == repeat_->first_layer; }
  std::int32_t first_repeated() const { return first_repeated_; }  // row of the late repeat
  // Return the parts of the late repeat, and the one that a batch begins.
  std::vector<RepeatedPart> repeated_parts() const;
  std::optional<RepeatedPart> begun_part(const Batch& batch) const;

  // Returns the sum of all layers' rows.
  std::int64_t work_total() const;

 private:
  // A range of batches_.
  struct Sweep {
    std::size_t first = 0, last = 0;
  };

  void add_part(std::int32_t first_row, std::int32_t n_rows, std::int32_t first_position, const Batch& kind);
  std::vector<Sweep> make_sweeps(const ForwardPlan& plan, bool waits_for_weights) const;
  void add_visits(const ForwardPlan& plan, const ModelSpec& spec, std::span<const Sweep> sweeps);
  // Returns a layer's batches of a sweep. Suffixes end before the layers that attend to another's entries: their own
  // are no longer there. Those of a late repeat begin at its first layer.
  std::span<const Batch> batches_of(const Sweep& sweep, const ModelSpec& spec, int layer) const;

  const std::int32_t n_batch_;
  const std::optional<LateRepeat> repeat_;
  std::vector<Batch> batches_;                              // of one layer
  std::size_t n_prompt_batches_ = 0, n_early_batches_ = 0;  // the second: without those of the late repeat
  std::int32_t first_repeated_ = 0;
  std::vector<Suffix> suffixes_;
  std::size_t n_sweeps_ = 0;
  std::vector<Visit> visits_;
};

}  // namespace winnow
