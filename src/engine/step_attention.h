// Attention of one decoding step: one new row for each of several sequences, each with its own ragged cache.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cache/ragged_cache.h"
#include "engine/query_evidence.h"
#include "eviction/aligned_bytes.h"
#include "kernels/attention.h"
#include "model/compute.h"
#include "model/graph_builder.h"

namespace winnow {

// One sequence of the step.
struct StepSequence {
  RaggedCache* cache;  // extended by the step's entry, which is not yet written
  QueryEvidence* evidence;
  std::int32_t position;  // of the step's token
};

// The graph is built once and run for every step; plan() says before each run what it attends to. The entries of all
// (sequence, KV head) pairs of a layer are laid end to end, in slices, and every thread takes about as many entries of
// them, so a thread's work does not depend on how ragged the cache is. Partial results of a head in several slices are
// merged, in order, by whichever thread finishes last.
class StepAttention : public AttentionHook {
 public:
  // Sequences may differ in entry types.
  StepAttention(const Hparams& hparams, int n_sequences, Compute& compute);

  void plan(std::span<const StepSequence> sequences);

  // Partial results and the threads' workspaces.
  std::size_t bytes() const;
  // The most that one sequence needs of partial results.
  static std::size_t most_partial_bytes(int n_head, int head_dim);

  ggml_tensor* attend(ggml_context* context, int layer, ggml_tensor* q_unrotated, ggml_tensor* q, ggml_tensor* k,
                      ggml_tensor* v) override;

 private:
  // A run of entries [first, last) of one head.
  struct Slice {
    std::int32_t head;  // sequence * n_kv_head + KV head
    std::int32_t first;
    std::int32_t last;
    std::int32_t partial;  // index of its partial state, or -1: the slice is the whole head
  };
  struct HeadPlan {
    std::int32_t first_partial;
    std::int32_t n_slices;
  };
  struct Layer {
    StepAttention* owner = nullptr;
    int layer = 0;
    std::vector<Slice> slices;
    std::vector<std::int32_t> first_slice;  // [n_threads + 1] of each part
    std::vector<HeadPlan> heads;            // [n_sequences * n_kv_head]
  };

  static void run(ggml_tensor* dst, int ith, int nth, void* userdata);
  void run_part(const Layer& layer, const ggml_tensor* dst, int part);
  void plan_layer(Layer& layer);
  void store(const Layer& layer, int head, const ggml_tensor* dst);

  // What one thread works in.
  struct Workspace {
    kernels::GroupSoftmaxes state;  // of a slice that is a whole head
    AlignedBytes scratch;           // of the kernel
  };

  const Hparams& hparams_;
  Compute& compute_;
  std::vector<StepSequence> sequences_;
  std::vector<Layer> layers_;
  kernels::GroupSoftmaxes partials_;          // of the slices that share a head
  std::vector<Workspace> workspaces_;         // [n_threads]
  std::unique_ptr<std::atomic<int>[]> done_;  // [n_sequences * n_kv_head] slices finished in the present layer
};

}  // namespace winnow
