// The attention of reference rows over all entries of every layer before any is dropped, which refitted values must
// reproduce (eviction/refit/value_fit.h).
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "cache/page_pool.h"
#include "cache/ragged_cache.h"
#include "model/layer_spec.h"
#include "winnow/layer_view.h"

namespace winnow {

// Records attention outputs layer by layer and refits values to them. Not thread-safe. Its memory is counted in the
// pool.
class ReferenceAttention {
 public:
  // range: the layers to record. Throws Error(kOutOfMemory) where a prompt or turn of n_tokens tokens would exceed the
  // pool's limit.
  ReferenceAttention(const ModelSpec& spec, LayerRange range, std::int32_t n_tokens,
                     const std::shared_ptr<PagePool>& pool);

  // Returns the most bytes that a prompt or turn of n_tokens tokens takes.
  static std::size_t bytes_for(const ModelSpec& spec, LayerRange range, std::int32_t n_tokens);

  // Records the attention of the view's reference rows over all its entries, once a layer, and gives the view their
  // log-sum-exps, valid until the next call.
  void add_layer(LayerView& view, const ParallelFor& parallel_for);

  // Refits the values of the recorded layers' entries in `cache`, head by head, then codes them. Called once their
  // entries are final. Sinks and entries that are always kept take part.
  void refit(RaggedCache& cache, const ParallelFor& parallel_for) const;

 private:
  static constexpr EntryType kStored = EntryType::kF16;

  // The rows of one KV head: those of its GQA group, [n_rows * n_group].
  struct Head {
    int layer, kv_head;
    kernels::AttentionShape shape;
    int n_rows;
    std::vector<std::byte> q, target;  // [n_rows][key_dim], [n_rows][value_dim], kStored
    std::vector<float> log_sum_exp, sink_logits;
  };
  void record(const LayerView& view, const ParallelFor& parallel_for);
  void refit_head(const Head& head, RaggedCache& cache) const;

  Reservation reservation_;
  std::vector<Head> heads_;
  std::vector<float> log_sum_exp_;  // [n_reference_rows][n_head] of the layer last asked for
};

}  // namespace winnow
