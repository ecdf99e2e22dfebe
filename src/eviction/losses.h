// What an eviction costs the layer's output, measured, and the papers' bounds on it, for the last prompt row.
#pragma once

#include <span>
#include <vector>

#include "eviction/evidence.h"

namespace winnow {

struct LayerLosses {
  std::vector<double> loss_head;  // [n_head] || (A - A') V W_O[h] ||_1, A' renormalised over the kept entries
  std::vector<double> theta;      // [n_head] CriticalKV, Theorem 3.3
  std::vector<double> theta_hat;  // [n_head] CriticalKV, Theorem 3.5; empty without a first stage
  double loss_layer = 0;          // || y - y' ||_1, heads summed inside the norm
  double ada_eps = 0;             // Ada-KV, Theorem 3.1
  double lava_bound = 0;          // LAVa, Theorem 1
};

// The view holds the layer's full entries, at least one window row and W_O.
//   kept: [n_kv_head] ascending indices of the entries that stay, window included
//   certain: [n_kv_head] those kept for certain before CriticalKV's second stage (stage 1, sinks, window), or empty
LayerLosses measure_losses(const LayerView& view, std::span<const std::vector<std::int32_t>> kept,
                           std::span<const std::vector<std::int32_t>> certain, const ParallelFor& parallel_for);

}  // namespace winnow
