#include "study/losses.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/aligned_bytes.h"
#include "eviction/evidence/query_rows.h"
#include "eviction/evidence/stored_rows.h"
#include "kernels/statistics/projected_norms.h"
#include "kernels/statistics/window_statistics.h"
#include "winnow/layer_evidence.h"

namespace winnow {
namespace {

// Returns the attention of the last row on every entry, [n_kv_head][n_group * n_entries].
std::vector<std::vector<float>> last_row_attention(const LayerView& view, const ParallelFor& parallel_for) {
  const float* q = view.window_q + std::ptrdiff_t{view.n_window_rows - 1} * view.n_head * view.shape.key_dim;
  std::vector<std::vector<float>> attention(view.n_kv_head);
  parallel_for(view.n_kv_head, [&](int h) {
    const kernels::HeadEntries& entries = view.heads[h];
    attention[h].resize(std::size_t(view.shape.n_group) * entries.n_entries);
    AlignedBytes scratch(kernels::window_statistics_scratch_bytes(view.shape, 1));
    kernels::window_statistics(view.shape.of_head(h), entries, group_rows(view, q, 1, h),
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

// Returns sum_i weight_i v_i, [value_dim].
std::vector<double> weighted_values(const LayerView& view, int kv_head, const std::vector<double>& weight) {
  const int d = view.shape.value_dim;
  std::vector<double> sum(d, 0.0);
  const kernels::HeadEntries& entries = view.heads[kv_head];
  for_each_row(view.shape, entries, kernels::RowKind::kValue, entries.n_entries,
               [&](std::int32_t i, const float* value) {
                 for (int c = 0; c < d; ++c) sum[c] += weight[i] * static_cast<double>(value[c]);
               });
  return sum;
}

// Returns the largest L1 norm of a row of the (n_head * value_dim) x n_embd matrix W_O.
double largest_row(const LayerView& view) {
  double largest = 0;
  for (std::ptrdiff_t row = 0; row < std::ptrdiff_t{view.n_head} * view.shape.value_dim; ++row) {
    double norm = 0;
    for (int j = 0; j < view.n_embd; ++j) norm += std::fabs(static_cast<double>(view.w_o[row * view.n_embd + j]));
    largest = std::max(largest, norm);
  }
  return largest;
}

}  // namespace

LossMeter::LossMeter(const LayerView& view, const ParallelFor& parallel_for)
    : view_(view), parallel_for_(parallel_for), largest_row_(largest_row(view)) {
  const std::vector<std::vector<float>> weights = last_row_attention(view, parallel_for);
  attention_.resize(view.n_head);
  projected_.resize(view.n_head);
  largest_value_.resize(view.n_kv_head);
  kernels::AttentionShape one_head = view.shape;
  one_head.n_group = 1;  // for norms of values alone
  parallel_for(view.n_head, [&](int h) {
    const int kv_head = h / view.shape.n_group;
    const std::size_t n = view.heads[kv_head].n_entries;
    const float* a = weights[kv_head].data() + std::size_t(h % view.shape.n_group) * n;
    // Attention is normalised in double, because the bounds are differences of nearly equal numbers if little is
    // evicted. A sink's weight belongs to no entry.
    const double sum = view.shape.spec.sink_logits != nullptr ? 1.0 : std::accumulate(a, a + n, 0.0);
    for (std::size_t i = 0; i < n; ++i) attention_[h].push_back(static_cast<double>(a[i]) / sum);
    const std::size_t n_w_o = std::size_t(view.shape.value_dim) * view.n_embd;
    projected_[h].resize(n);
    kernels::projected_value_norms(one_head, view.heads[kv_head], {view.w_o + h * n_w_o, n_w_o}, view.n_embd,
                                   projected_[h]);
  });
  for (const std::vector<float>& head : projected_) {
    for (const float norm : head) largest_projected_ = std::max(largest_projected_, static_cast<double>(norm));
  }
  for (int h = 0; h < view.n_kv_head; ++h) {
    std::vector<float> norms(view.heads[h].n_entries);
    kernels::value_l1_norms(view.shape, view.heads[h], norms);
    for (const float norm : norms) largest_value_[h] = std::max(largest_value_[h], static_cast<double>(norm));
  }
}

// The change that a cut makes to one query head.
struct LossMeter::HeadChange {
  double mass = 0, lost = 0;                    // attention on the entries that are kept, and on the others
  double kept_weighted = 0, lost_weighted = 0;  // the same times || v_i W_O[h] ||_1
  std::vector<double> difference;               // (A - A') V W_O[h], [n_embd]
  double grown() const { return lost / mass; }  // 1/sigma - 1: relative growth of what is kept by renormalising
};

LossMeter::HeadChange LossMeter::change_of(int h, const std::vector<std::int32_t>& kept) const {
  const std::vector<double>& a = attention_[h];
  std::vector<char> is_kept(a.size(), 0);
  for (const std::int32_t i : kept) is_kept[i] = 1;
  HeadChange change;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double weighted = a[i] * static_cast<double>(projected_[h][i]);
    (is_kept[i] != 0 ? change.mass : change.lost) += a[i];
    (is_kept[i] != 0 ? change.kept_weighted : change.lost_weighted) += weighted;
  }
  std::vector<double> weight(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) weight[i] = a[i] * (is_kept[i] != 0 ? -change.grown() : 1.0);
  const std::vector<double> values = weighted_values(view_, h / view_.shape.n_group, weight);
  const int d = view_.shape.value_dim;
  const float* w_o = view_.w_o + std::ptrdiff_t{h} * d * view_.n_embd;
  change.difference.assign(view_.n_embd, 0.0);
  for (int c = 0; c < d; ++c) {
    for (int j = 0; j < view_.n_embd; ++j) {
      change.difference[j] += values[c] * static_cast<double>(w_o[std::ptrdiff_t{c} * view_.n_embd + j]);
    }
  }
  return change;
}

LayerLosses LossMeter::measure(std::span<const std::vector<std::int32_t>> kept,
                               std::span<const std::vector<std::int32_t>> certain) const {
  std::vector<HeadChange> changes(view_.n_head);
  parallel_for_(view_.n_head, [&](int h) { changes[h] = change_of(h, kept[h / view_.shape.n_group]); });

  LayerLosses losses;
  double all_lost = 0, value_lost = 0;
  for (int h = 0; h < view_.n_head; ++h) {
    const int kv_head = h / view_.shape.n_group;
    const HeadChange& change = changes[h];
    losses.mass.push_back(change.mass);
    double loss = 0;
    for (const double x : change.difference) loss += std::fabs(x);
    losses.loss_head.push_back(loss);
    // Theta is C - (2 - 1/sigma) sum_kept A_i || v_i W_O ||_1, with C the same sum over all entries and sigma the
    // attention kept.
    losses.theta.push_back(change.lost_weighted + change.grown() * change.kept_weighted);
    if (!certain.empty()) {
      double mass = 0;
      for (const std::int32_t i : certain[kv_head]) mass += attention_[h][i];
      losses.theta_hat.push_back(change.lost_weighted + (1.0 / mass - 1.0) * change.kept_weighted);
    }
    all_lost += change.lost;
    value_lost += largest_value_[kv_head] * change.lost;
  }
  for (int j = 0; j < view_.n_embd; ++j) {
    double difference = 0;
    for (const HeadChange& change : changes) difference += change.difference[j];
    losses.loss_layer += std::fabs(difference);
  }
  losses.ada_eps = 2.0 * largest_projected_ * all_lost;
  losses.lava_bound = 2.0 * largest_row_ * value_lost;
  return losses;
}

}  // namespace winnow
