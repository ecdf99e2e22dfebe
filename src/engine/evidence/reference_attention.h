// What reference rows see over all entries of every layer, before anything is dropped: what refitted values are held
// to.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "cache/page_pool.h"
#include "cache/ragged_cache.h"
#include "model/layer_spec.h"
#include "winnow/layer_view.h"

namespace winnow {

// Not thread-safe. Its memory is counted in the pool.
class ReferenceAttention {
 public:
  // Of these layers. Throws Error(kOutOfMemory) where a prompt or turn of n_tokens tokens would take more than the
  // pool's limit.
  ReferenceAttention(const ModelSpec& spec, LayerRange range, std::int32_t n_tokens,
                     const std::shared_ptr<PagePool>& pool);

  // The most that a prompt or turn of n_tokens tokens takes.
  static std::size_t bytes_for(const ModelSpec& spec, LayerRange range, std::int32_t n_tokens);

  // Takes the attention of the view's reference rows on all its entries, and gives the view their log-sum-exps, which
  // last until the next layer is added.
  void add_layer(LayerView& view, const ParallelFor& parallel_for);

  // Once what stays of the layers added is final: refits the values of their entries in `cache` (value_fit.h), each
  // head by itself. Sinks take part, and so do entries that are always kept.
  void refit(RaggedCache& cache, const ParallelFor& parallel_for) const;

 private:
  static constexpr EntryType kStored = EntryType::kF16;

  // One KV head's rows: those of the whole group, [n_rows * n_group].
  struct Head {
    int layer, kv_head;
    kernels::AttentionShape shape;
    int n_rows;
    std::vector<std::byte> q, target;  // [n_rows][key_dim], [n_rows][value_dim], kStored
    std::vector<float> log_sum_exp, sinks;
  };
  void refit_head(const Head& head, RaggedCache& cache) const;

  std::shared_ptr<void> reservation_;
  std::vector<Head> heads_;
  std::vector<float> log_sum_exp_;  // [n_reference_rows][n_head] of the latest layer
};

}  // namespace winnow
