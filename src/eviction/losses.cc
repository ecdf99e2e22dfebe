#include "eviction/losses.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "eviction/aligned_bytes.h"
#include "eviction/layer_evidence.h"
#include "kernels/rows.h"
#include "kernels/window_statistics.h"

namespace winnow {
namespace {

// Attention of the last row on every entry, [n_kv_head][n_group * n_entries].
std::vector<std::vector<float>> last_row_attention(const LayerView& view, const ParallelFor& parallel_for) {
  const float* q = view.window_q + std::ptrdiff_t{view.n_window_rows - 1} * view.n_head * view.shape.head_dim;
  std::vector<std::vector<float>> attention(view.n_kv_head);
  parallel_for(view.n_kv_head, [&](int h) {
    const kernels::HeadEntries& entries = view.heads[h];
    attention[h].resize(std::size_t(view.shape.n_group) * entries.n_entries);
    AlignedBytes scratch(kernels::window_statistics_scratch_bytes(view.shape, 1));
    kernels::window_statistics(view.shape, entries, group_rows(view, q, 1, h),
                               {.n_columns = entries.n_entries,
                                .mean = nullptr,
                                .m2 = nullptr,
                                .max = nullptr,
                                .last = attention[h].data(),
                                .entropy = nullptr},
                               scratch.span());
  });
  return attention;
}

// sum_i weight_i v_i, [head_dim].
std::vector<double> weighted_values(const LayerView& view, int kv_head, const std::vector<double>& weight) {
  const int d = view.shape.head_dim;
  const std::size_t bytes = row_bytes(view.shape.value_type, d);
  std::vector<double> sum(d, 0.0);
  std::vector<float> value(d);
  std::size_t i = 0;
  for (const kernels::EntryRun& run : view.heads[kv_head].runs) {
    for (std::int32_t r = 0; r < run.n_entries; ++r, ++i) {
      kernels::load_row(view.shape.value_type, run.values + r * bytes, value.data(), d);
      for (int c = 0; c < d; ++c) sum[c] += weight[i] * static_cast<double>(value[c]);
    }
  }
  return sum;
}

// The largest L1 norm of a row of the (n_head * head_dim) x n_embd matrix W_O.
double largest_row(const LayerView& view) {
  double largest = 0;
  for (std::ptrdiff_t row = 0; row < std::ptrdiff_t{view.n_head} * view.shape.head_dim; ++row) {
    double norm = 0;
    for (int j = 0; j < view.n_embd; ++j) norm += std::fabs(static_cast<double>(view.w_o[row * view.n_embd + j]));
    largest = std::max(largest, norm);
  }
  return largest;
}

}  // namespace

LayerLosses measure_losses(const LayerView& view, std::span<const std::vector<std::int32_t>> kept,
                           std::span<const std::vector<std::int32_t>> certain, const ParallelFor& parallel_for) {
  const int d = view.shape.head_dim;
  const std::vector<std::vector<float>> attention = last_row_attention(view, parallel_for);

  LayerLosses losses;
  losses.loss_head.resize(view.n_head);
  losses.theta.resize(view.n_head);
  if (!certain.empty()) losses.theta_hat.resize(view.n_head);
  std::vector<std::vector<double>> difference(view.n_head);  // (A - A') V W_O[h], [n_embd]
  std::vector<double> largest_projected(view.n_head, 0.0);   // max_i || v_i W_O[h] ||_1
  std::vector<double> lost(view.n_head, 0.0);                // attention on what is evicted
  std::vector<double> largest_value(view.n_head, 0.0);       // max_k || v_k ||_1
  parallel_for(view.n_head, [&](int h) {
    const int kv_head = h / view.shape.n_group;
    const kernels::HeadEntries& entries = view.heads[kv_head];
    const std::size_t n = entries.n_entries;
    const float* a = attention[kv_head].data() + std::size_t(h % view.shape.n_group) * n;
    const float* w_o = view.w_o + std::ptrdiff_t{h} * d * view.n_embd;
    std::vector<char> is_kept(n, 0);
    for (const std::int32_t i : kept[kv_head]) is_kept[i] = 1;

    kernels::AttentionShape one_head = view.shape;
    one_head.n_group = 1;
    std::vector<float> projected(n), norms(n);
    kernels::projected_value_norms(one_head, entries, {w_o, std::size_t(d) * view.n_embd}, view.n_embd, projected);
    kernels::value_l1_norms(view.shape, entries, norms);

    // Normalised in double: the bounds are differences of nearly equal numbers where little is evicted.
    const double sum = std::accumulate(a, a + n, 0.0);
    double mass = 0, lost_weighted = 0, kept_weighted = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const double attended = static_cast<double>(a[i]) / sum;
      const double weighted = attended * static_cast<double>(projected[i]);
      (is_kept[i] != 0 ? mass : lost[h]) += attended;
      (is_kept[i] != 0 ? kept_weighted : lost_weighted) += weighted;
      largest_projected[h] = std::max(largest_projected[h], static_cast<double>(projected[i]));
      largest_value[h] = std::max(largest_value[h], static_cast<double>(norms[i]));
    }
    // C - (2 - 1/sigma) sum_kept A_i || v_i W_O ||_1 with C the same sum over all entries and sigma the attention kept.
    const double grown = lost[h] / mass;  // 1/sigma - 1: what renormalising adds to the kept ones
    losses.theta[h] = lost_weighted + grown * kept_weighted;
    if (!certain.empty()) {
      double certain_mass = 0;
      for (const std::int32_t i : certain[kv_head]) certain_mass += static_cast<double>(a[i]) / sum;
      losses.theta_hat[h] = lost_weighted + (1.0 / certain_mass - 1.0) * kept_weighted;
    }
    std::vector<double> change(n);
    for (std::size_t i = 0; i < n; ++i) {
      change[i] = static_cast<double>(a[i]) / sum * (is_kept[i] != 0 ? -grown : 1.0);
    }
    const std::vector<double> values = weighted_values(view, kv_head, change);
    difference[h].assign(view.n_embd, 0.0);
    for (int c = 0; c < d; ++c) {
      for (int j = 0; j < view.n_embd; ++j) {
        difference[h][j] += values[c] * static_cast<double>(w_o[std::ptrdiff_t{c} * view.n_embd + j]);
      }
    }
    for (const double x : difference[h]) losses.loss_head[h] += std::fabs(x);
  });

  for (int j = 0; j < view.n_embd; ++j) {
    double change = 0;
    for (const std::vector<double>& head : difference) change += head[j];
    losses.loss_layer += std::fabs(change);
  }
  double all_lost = 0, value_lost = 0;
  for (int h = 0; h < view.n_head; ++h) {
    all_lost += lost[h];
    value_lost += largest_value[h] * lost[h];
  }
  losses.ada_eps = 2.0 * *std::max_element(largest_projected.begin(), largest_projected.end()) * all_lost;
  losses.lava_bound = 2.0 * largest_row(view) * value_lost;
  return losses;
}

}  // namespace winnow
