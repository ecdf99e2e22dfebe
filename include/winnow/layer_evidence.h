// Everything that the parts of a method read of one layer: the engine's view, and the statistics taken from it on
// demand, each computed once however many parts ask. Nothing is larger than H x N.
//
// Not thread-safe; parallel inside with the ParallelFor given. Lives as long as the view.
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

// Reductions of the window rows over the prefix columns; vectors not asked for are empty.
struct WindowStatistics {
  int n_rows = 0;
  std::vector<std::vector<float>> mean;      // [n_kv_head][n_group * n_prefix]
  std::vector<std::vector<float>> m2;        // likewise: sum of the squared distances from the mean
  std::vector<std::vector<float>> max;       // likewise
  std::vector<std::vector<float>> last;      // likewise
  std::vector<std::vector<double>> entropy;  // [n_kv_head][n_group]
};

class LayerEvidence {
 public:
  // `columns`: WindowColumn bits that any part will ask for. `costs`: of those who share this, if somebody counts.
  LayerEvidence(const LayerView& view, const EvictionOptions& options, unsigned columns,
                const ParallelFor& parallel_for, SharedCosts* costs = nullptr);
  ~LayerEvidence();
  LayerEvidence(const LayerEvidence&) = delete;
  LayerEvidence& operator=(const LayerEvidence&) = delete;

  const LayerView& view() const { return view_; }
  int n_kv_head() const { return view_.n_kv_head; }
  int n_group() const { return view_.shape.n_group; }
  std::int32_t n_entries(int head) const { return view_.heads[at(head)].n_entries; }
  std::int32_t n_prefix(int head) const { return n_prefix_[at(head)]; }  // stored entries before the window
  std::int32_t n_sinks(int head) const { return n_sinks_[at(head)]; }    // of these, the first tokens
  std::int32_t n_candidates(int head) const { return n_prefix(head) - n_sinks(head); }
  std::vector<std::int32_t> positions(int head) const;  // [n_entries]

  // Stored rows [first, last) of a head as float32: keys [last - first][key_dim], values [last - first][value_dim].
  void read_keys(int head, std::int32_t first, std::int32_t last, float* out) const;
  void read_values(int head, std::int32_t first, std::int32_t last, float* out) const;

  // Statistics of the last min(n_rows, rows that the engine saved) query rows.
  const WindowStatistics& window(int n_rows);

  // Root of the mean, over the reference rows and the group, of the squared attention on a prefix entry:
  // [n_kv_head][n_prefix].
  const std::vector<std::vector<float>>& reference_rms();

  // Each of these has a number for every stored entry: [n_kv_head][n_entries].
  const std::vector<std::vector<float>>& key_l2_norms();
  const std::vector<std::vector<float>>& value_l1_norms();
  const std::vector<std::vector<float>>& value_l2_norms();
  // The cosine between a key and the mean of its head's keys, each taken at length 1; 0 for a key of zeros.
  const std::vector<std::vector<float>>& mean_key_cosines();

  // The logarithm of the expected exponential of the scores that normally distributed queries have with each stored key
  // of a head: scale mu'k + scale^2 k'Sigma k / 2, [n_group][n_entries]. mean: mu, [n_group][key_dim]; covariance:
  // Sigma, [n_group][key_dim][key_dim], symmetric; both after rotation. Not kept: it depends on what it is given.
  std::vector<double> expected_scores(int head, std::span<const double> mean, std::span<const double> covariance) const;

  // r[i] of CriticalKV for every entry (section 4): [n_kv_head][n_entries].
  const std::vector<std::vector<float>>& projected_value_norms();

  // Throws Error(kInvalidArgument), naming layer and head, for a stored key or one of `n_rows` query rows
  // ([n_rows][n_head][head_dim]) that is not finite. The attention kernels would take it for an entry that nobody looks
  // at, and a NaN must not rank.
  void check_finite(const float* q, int n_rows);

  void for_each_head(const std::function<void(int head)>& body) const { parallel_for_(n_kv_head(), body); }
  void parallel(int n_items, const std::function<void(int)>& body) const { parallel_for_(n_items, body); }

 private:
  struct State;
  static std::size_t at(int i) { return static_cast<std::size_t>(i); }

  const LayerView& view_;
  const ParallelFor& parallel_for_;
  std::vector<std::int32_t> n_prefix_, n_sinks_;  // [n_kv_head]
  std::unique_ptr<State> state_;                  // what was computed so far
};

}  // namespace winnow
