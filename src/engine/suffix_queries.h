// The queries that a pass keeps for policies that look at rows which repeat the prompt: those of the suffixes in the
// present layer and, in the layers before a late repeat, the prompt's own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/executor.h"
#include "engine/forward_plan.h"
#include "model/layer_spec.h"

namespace winnow {

class SuffixQueries {
 public:
  // The queries of many rows of a layer and what is known of them.
  struct Rows {
    // Returns where those of a row begin; null where there are none.
    QueryCopies from(const LayerSpec& spec, std::int32_t row);

    std::vector<float> q;            // [n_rows][n_head][key_dim], rotated; empty where the executor keeps them
    std::vector<float> log_sum_exp;  // [n_rows][n_head]
    // [n_rows] L2 norms of the residual stream before the layer, or empty. Those of a late repeat, which kvzip+ does
    // not read, are not written.
    std::vector<float> input_norm;
  };

  // Makes room for the prompt's rows in the layers before the late repeat. `spec` and `schedule` must outlive it.
  SuffixQueries(const ModelSpec& spec, const RowSchedule& schedule, const ForwardPlan& plan, bool executor_keeps_them);

  // Returns the buffers that a batch's queries are copied to in a layer; null where they are not kept.
  QueryCopies copies(int layer, const RowSchedule::Batch& batch);
  // Return the queries of a layer's suffixes as the policy takes them: of the repeat prompts, and of the late repeat.
  // In the layers before that its queries are the prompt's own rows as the prompt read them, until somebody makes a
  // repeat of what replayed() returns.
  std::vector<ReconstructionPass> whole_passes(int layer);
  std::vector<ReconstructionPass> late_passes(int layer);
  // Returns whether suffixes go through the layer: the next layer's queries overwrite theirs.
  bool has_suffixes(int layer) const;

  Rows& replayed(int layer) { return replayed_[n_together_ > 1 ? static_cast<std::size_t>(layer - first_layer_) : 0]; }
  void free_replayed() { replayed_.clear(); }
  // Returns the bytes of the prompt's own queries that are held at most where several layers are taken together.
  static std::size_t replayed_bytes(const ModelSpec& spec, LayerRange layers, const LateRepeat& repeat,
                                    std::int32_t n_tokens);

 private:
  void reserve();

  const ModelSpec& spec_;
  const RowSchedule& schedule_;
  const int first_layer_, n_together_;
  const std::int32_t n_tokens_, n_rows_;
  const bool executor_keeps_them_;
  Rows suffixes_;               // in the present layer
  std::vector<Rows> replayed_;  // of the prompt's rows: in the present layer, or in each that is taken together
};

}  // namespace winnow
