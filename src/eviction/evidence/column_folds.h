// Folds of attention columns over many query rows whose log-sum-exps the prefill saved: H2O's sums, KVzip's maxima, the
// sums of squares of rms.
#pragma once

#include <span>
#include <vector>

#include "eviction/evidence/entry_statistics.h"
#include "winnow/layer_evidence.h"

namespace winnow {

// Returns the prefix entries of every head: [n_kv_head].
std::vector<kernels::EntryRange> prefix_ranges(const LayerEvidence& evidence);

// Returns the fold over rows of the attention weights on a range of every head's entries: [n_kv_head][n_group * its
// size].
//   log_sum_exp: the rows', [n_rows][n_head]
//   ranges:      [n_kv_head]
std::vector<std::vector<float>> fold_columns(const LayerEvidence& evidence, kernels::ColumnFold fold,
                                             StatisticsRows rows, const float* log_sum_exp,
                                             std::span<const kernels::EntryRange> ranges);

}  // namespace winnow
