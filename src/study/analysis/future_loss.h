// LU-KV's losses of cuts, given the attention of later tokens.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "study/analysis/analysis.h"

namespace winnow {

using HeadValues = std::vector<std::vector<double>>;  // [heads that are cut][n_context]

// Fills loss, least_loss, recall and future_mass of a layer's outcome. `positions` [n_kv_head] are those kept,
// `importance` and `attention` [n_kv_head][n_context] those of that layer.
void add_future_losses(std::span<const std::vector<std::int32_t>> positions,
                       std::span<const std::vector<double>> importance, std::span<const std::vector<double>> attention,
                       LayerOutcome& outcome);

// Fills the sums of a cut whose layers are filled. `scores` [heads that are cut][n_context - window] are its scorer's.
void add_model_losses(const HeadValues& importance, const std::vector<std::vector<float>>& scores,
                      const EvictionOptions& method, CutOutcome& outcome);

// Returns the least share of the importance that is lost within each number of bytes, keeping entries by importance per
// byte.
//   importance: [heads][n_context] of heads that share the bytes
//   layers: [heads] of these, for the sizes of their entries
LossByBytes loss_by_bytes(std::span<const std::vector<double>> importance, std::span<const LayerInfo* const> layers);

}  // namespace winnow
