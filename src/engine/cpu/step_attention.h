// Attention of one decoding step: one new row for each of several sequences, each with its own ragged cache.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/aligned_bytes.h"
#include "engine/cpu/recurrent_rows.h"
#include "engine/executor.h"
#include "kernels/attention/attention.h"
#include "model/compute.h"
#include "model/graph_builder.h"
#include "model/model_impl.h"

namespace winnow {

// The work of each thread in one layer of a step, like FlashInfer's scheduler plan. A head is a (sequence, KV head)
// pair: sequence * n_kv_head + KV head.
struct StepPlan {
  // The entries [first, last) of one head.
  struct Slice {
    std::int32_t head;
    std::int32_t first;
    std::int32_t last;
    std::int32_t partial;  // index of its softmax state among those to be merged; -1: the slice is the whole head
  };
  struct Head {
    std::int32_t first_partial;
    std::int32_t n_slices;
  };
  std::vector<Slice> slices;              // of all heads, one after the other
  std::vector<std::int32_t> first_slice;  // [n_threads + 1] where each thread's slices begin
  std::vector<Head> heads;                // [n_sequences * n_kv_head]
  std::int32_t n_partials = 0;
};

// Fills the plan: cuts every head's entries into slices and shares all heads' slices out so that every thread takes
// about as many entries, however ragged the cache is.
//   n_entries: [n_sequences * n_kv_head]
void plan_step(std::span<const std::int32_t> n_entries, int n_threads, StepPlan& plan);

// Attends in a graph that is built once and run for every step; plan() says before each run what it attends to. The
// softmax states (m, d, o) of a head's slices are merged in order by the thread that finishes last.
class StepAttention : public SequenceHook {
 public:
  // range: the layers of the graph. Sequences may differ in entry types. The model must outlive this.
  StepAttention(const Model::Impl& model, LayerRange layers, int n_sequences, Compute& compute);

  // Plans the next step of these sequences; throws Error(kOutOfMemory) where a recurrent state does not fit.
  void plan(std::span<const StepSequence> sequences);

  // Returns the bytes of partial results and of the threads' workspaces.
  std::size_t bytes() const;
  // Returns the most bytes of partial results that one sequence needs.
  static std::size_t most_partial_bytes(int n_head, int head_dim);

  ggml_tensor* attend(ggml_context* context, int layer, ggml_tensor* q_unrotated, ggml_tensor* q, ggml_tensor* k,
                      ggml_tensor* v) override;
  ggml_tensor* recur(ggml_context* context, int layer, RecurrentStep step,
                     std::span<ggml_tensor* const> inputs) override;

 private:
  struct Layer {
    StepAttention* owner = nullptr;
    int layer = 0;
    StepPlan plan;
    RecurrentRows recurrent;
  };
  // The memory that one thread works in.
  struct Workspace {
    kernels::GroupSoftmaxes state;  // the state of a slice that is a whole head
    AlignedBytes scratch;           // the kernel's
  };

  static void run(ggml_tensor* dst, int ith, int nth, void* userdata);
  void run_part(const Layer& layer, const ggml_tensor* dst, int part);
  void store(int layer, int head, const ggml_tensor* dst);

  const Model::Impl& model_;
  Compute& compute_;
  std::vector<StepSequence> sequences_;
  LayerRange range_;
  std::vector<Layer> layers_;                 // of the range
  std::vector<std::int32_t> n_entries_;       // heads' entries in the layer that is being planned
  kernels::GroupSoftmaxes partials_;          // states of the slices that share a head
  std::vector<Workspace> workspaces_;         // [n_threads]
  std::unique_ptr<std::atomic<int>[]> done_;  // [heads] slices finished in the present layer
};

}  // namespace winnow
