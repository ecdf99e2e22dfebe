// LU-KV ("Predicting Future Utility"): from oracle importances to a profile of local kept ratios.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "winnow/layer_view.h"

namespace winnow {

// The oracle importance of a layer's entries: for entry j the largest A[k][j] * || v_j W_O[h] ||_2 over the decode
// steps k seen so far, and over the query heads of its group.
class OracleImportance {
 public:
  // value_norms: [n_head][n_entries], || v_j W_O[h] ||_2.
  OracleImportance(int n_kv_head, int n_group, std::vector<std::vector<float>> value_norms);

  void add_step(int head, std::span<const float> attention);  // adds the attention [n_entries] of one query head

  std::vector<std::vector<double>> importance() const;  // [n_kv_head][n_entries]

 private:
  int n_kv_head_, n_group_;
  std::vector<std::vector<float>> value_norms_;  // [n_head][n_entries]
  std::vector<std::vector<float>> attention_;    // [n_head][n_entries] largest so far
};

// Returns W_O[h] W_O[h]', [value_dim][value_dim]. With it || v W_O[h] ||_2^2 = v (W_O[h] W_O[h]') v' needs no product
// with n_embd columns for every v.
std::vector<double> projection_gram(const LayerView& view, int head);
double projected_square(std::span<const double> gram, std::span<const float> value);

// Returns || v_j W_O[h] ||_2 of the entries of one KV head, for query head h of the layer: [n_entries].
std::vector<float> projected_l2_norms(const LayerView& view, int head);

// Returns loss[i], the oracle importance outside the scorer's best i candidates: [n_candidates + 1]. Of equal scores
// the later token's is better.
std::vector<double> loss_curve(std::span<const double> oracle, std::span<const float> scores);

// Returns the largest convex, non-increasing curve below `loss` with the same ends, by pool-adjacent-violators on its
// increments.
std::vector<double> convex_surrogate(std::span<const double> loss);

// Curves of all heads, by (layer, head): [n_heads][n_candidates + 1], values at 0, 1, ... candidates kept.
using Curves = std::vector<std::vector<double>>;

// Gives `total` units one by one to the head with the largest marginal gain, ties to the lower index, which is exact on
// convex curves. Returns [n_heads] with the sum `total` (at most all candidates).
std::vector<std::int32_t> greedy_budgets(const Curves& convex, std::int64_t total);

// Returns the same for several totals, ascending: [n_totals][n_heads]. It takes one pass, as a larger total only adds
// units.
std::vector<std::vector<std::int32_t>> greedy_path(const Curves& convex, std::span<const std::int64_t> totals);

// Returns the least sum of losses for exactly `total` units on any curves, by the exact dynamic programme. It takes
// O(n_heads * total * n).
double least_loss(const Curves& curves, std::int64_t total);

double loss_at(const Curves& curves, std::span<const std::int32_t> budgets);

}  // namespace winnow
