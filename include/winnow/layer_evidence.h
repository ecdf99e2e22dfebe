// The evidence of one layer, from which the parts of a method work: the engine's view, and statistics of it. A
// statistic is computed when first asked for, and once however many parts ask. None is larger than H x N numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "winnow/api.h"
#include "winnow/eviction.h"
#include "winnow/layer_view.h"

namespace WINNOW_API winnow {

class SharedCosts;

// Attention weights of the observation window's rows on the prefix entries (the columns), reduced over the rows.
// Reductions that no part needs are empty.
struct WindowStatistics {
  int n_rows = 0;
  std::vector<std::vector<float>> mean;      // [n_kv_head][n_group * n_prefix], mean over the rows
  std::vector<std::vector<float>> m2;        // likewise, sum of the squared distances from the mean
  std::vector<std::vector<float>> max;       // likewise, largest
  std::vector<std::vector<float>> last;      // likewise, of the last row
  std::vector<std::vector<double>> entropy;  // [n_kv_head][n_group], -sum A log A over rows and columns, in nats
};

// The evidence of one layer. It must not outlive the view and the ParallelFor that it was made with. Not thread-safe;
// it computes in parallel inside.
class LayerEvidence {
 public:
  // Takes the WindowColumn bits that any part will ask for, and a counter that divides the time of statistics among the
  // sessions that share them, or null.
  LayerEvidence(const LayerView& view, const EvictionOptions& options, unsigned columns,
                const ParallelFor& parallel_for, SharedCosts* costs = nullptr);
  ~LayerEvidence();
  LayerEvidence(const LayerEvidence&) = delete;
  LayerEvidence& operator=(const LayerEvidence&) = delete;

  // Returns the layer with rows that can be read: where they lie on a device, the first call copies them.
  const LayerView& host_view() const { return view_.statistics == nullptr ? view_ : copied_view(); }
  [[deprecated("host_view")]] const LayerView& view() const { return host_view(); }
  // Returns the layer as the engine gave it, for what is no row: counts, positions, queries.
  const LayerView& layer() const { return view_; }
  int n_kv_head() const { return view_.n_kv_head; }
  int n_group() const { return view_.shape.n_group; }
  std::int32_t n_entries(int head) const { return view_.heads[at(head)].n_entries; }
  std::int32_t n_prefix(int head) const { return n_prefix_[at(head)]; }  // stored entries before the observation window
  std::int32_t n_sinks(int head) const { return n_sinks_[at(head)]; }    // of n_prefix, the attention sinks
  std::int32_t n_candidates(int head) const { return n_prefix(head) - n_sinks(head); }
  // Returns the number of stored entries before a position.
  std::int32_t n_before(int head, std::int32_t position) const;
  std::vector<std::int32_t> positions(int head) const;  // [n_entries] original positions

  // Dequantise stored rows [first, last) of a head to float32: keys [last - first][key_dim], with LayerView::key_scales
  // as the queries are, and values [last - first][value_dim].
  void read_keys(int head, std::int32_t first, std::int32_t last, float* out) const;
  void read_values(int head, std::int32_t first, std::int32_t last, float* out) const;

  // Returns statistics of the observation window: the last n_rows query rows, or as many as the engine saved.
  const WindowStatistics& window(int n_rows);

  // Returns the root mean square of the attention on each prefix entry, over the reference rows and the GQA group:
  // [n_kv_head][n_prefix].
  const std::vector<std::vector<float>>& reference_rms();
  // Returns the same over the last n_rows reference rows alone, at most kLastReferenceRows, for each query head of the
  // group: [n_kv_head][n_group * n_prefix]. It is computed anew in every call.
  std::vector<std::vector<float>> last_rows_rms(int n_rows);

  // Each of these returns a number for every stored entry: [n_kv_head][n_entries]. Keys are rotated, and as the model
  // makes them, without LayerView::key_scales.
  const std::vector<std::vector<float>>& key_l2_norms();
  const std::vector<std::vector<float>>& value_l1_norms();
  const std::vector<std::vector<float>>& value_l2_norms();
  // Returns the cosine between each key and the mean of its head's keys, each scaled to length 1; 0 for a key of zeros.
  const std::vector<std::vector<float>>& mean_key_cosines();

  // Returns the log of the expected exponential of the scores that normally distributed queries have with each stored
  // key k of a head (arXiv 2510.00636): scale mu'k + scale^2 k'Sigma k / 2, [n_group][n_entries]. The means mu
  // [n_group][key_dim] and the symmetric covariances Sigma [n_group][key_dim][key_dim] are those after rotation. The
  // result is computed anew in every call.
  std::vector<double> expected_scores(int head, std::span<const double> mean, std::span<const double> covariance) const;
  // The same of all heads, from the moments [n_head][key_dim] and [n_head][key_dim][key_dim]:
  // [n_kv_head][n_group * n_entries].
  std::vector<std::vector<double>> expected_scores(std::span<const double> mean,
                                                   std::span<const double> covariance) const;

  // Returns CriticalKV's value term for every entry (arXiv 2502.03805, section 4), the mean over the GQA group of
  // || v_i W_O[h] ||_1: [n_kv_head][n_entries].
  const std::vector<std::vector<float>>& projected_value_norms();

  // Throws Error(kInvalidArgument), naming layer and head, for a stored key or one of `n_rows` query rows
  // ([n_rows][n_head][head_dim], or null) that is not finite. The attention kernels would give such an entry no weight,
  // and a NaN must not be ranked.
  void check_finite(const float* q, int n_rows);

  // Both run body(i) on the engine's threads, for every KV head or for i in [0, n_items).
  void for_each_head(const std::function<void(int head)>& body) const { parallel_for_(n_kv_head(), body); }
  void parallel(int n_items, const std::function<void(int)>& body) const { parallel_for_(n_items, body); }

 private:
  // Returns the norms of the keys as they are stored.
  const std::vector<std::vector<float>>& stored_key_norms();

  struct State;
  const LayerView& copied_view() const;
  static std::size_t at(int i) { return static_cast<std::size_t>(i); }

  const LayerView& view_;
  const ParallelFor& parallel_for_;
  std::vector<std::int32_t> n_prefix_, n_sinks_;  // [n_kv_head]
  std::unique_ptr<State> state_;                  // statistics computed so far
};

}  // namespace winnow
