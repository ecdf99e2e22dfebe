// Measures what an eviction costs the layer's output for the last prompt row, and the papers' bounds on it.
#pragma once

#include <span>
#include <vector>

#include "winnow/layer_view.h"

namespace winnow {

struct LayerLosses {
  std::vector<double> mass;       // [n_head] attention of the last row on the kept entries, 0 .. 1
  std::vector<double> loss_head;  // [n_head] || (A - A') V W_O[h] ||_1, A' renormalised over the kept entries
  std::vector<double> theta;      // [n_head] CriticalKV, Theorem 3.3
  std::vector<double> theta_hat;  // [n_head] CriticalKV, Theorem 3.5; empty without a first stage
  double loss_layer = 0;          // || y - y' ||_1, heads summed inside the norm
  double ada_eps = 0;             // Ada-KV, Theorem 3.1
  double lava_bound = 0;          // LAVa, Theorem 1
};

// Measures cuts of one layer. Values that do not depend on the cut are computed once.
//
// Not thread-safe; parallel inside with the given ParallelFor. Must not outlive the view and the ParallelFor.
class LossMeter {
 public:
  // The view must hold the layer's full entries, at least one window row and W_O.
  LossMeter(const LayerView& view, const ParallelFor& parallel_for);

  // Returns the losses of a cut.
  //   kept: [n_kv_head] ascending indices of the kept entries, window included
  //   certain: [n_kv_head] those kept for certain before CriticalKV's second stage (stage 1, sinks, window), or empty
  LayerLosses measure(std::span<const std::vector<std::int32_t>> kept,
                      std::span<const std::vector<std::int32_t>> certain) const;

 private:
  struct HeadChange;
  HeadChange change_of(int head, const std::vector<std::int32_t>& kept) const;

  const LayerView& view_;
  const ParallelFor& parallel_for_;
  std::vector<std::vector<double>> attention_;  // [n_head][n_entries] of the last row
  std::vector<std::vector<float>> projected_;   // [n_head][n_entries] || v_i W_O[h] ||_1
  std::vector<double> largest_value_;           // [n_kv_head] max_k || v_k ||_1
  double largest_projected_ = 0;                // Ada-KV's C: max over h, i of || v_i W_O[h] ||_1
  double largest_row_ = 0;                      // LAVa's C^: the largest L1 norm of a row of W_O
};

// Measures one cut alone.
inline LayerLosses measure_losses(const LayerView& view, std::span<const std::vector<std::int32_t>> kept,
                                  std::span<const std::vector<std::int32_t>> certain, const ParallelFor& parallel_for) {
  return LossMeter(view, parallel_for).measure(kept, certain);
}

}  // namespace winnow
