// Folds of attention columns over many query rows whose log-sum-exps the prefill saved: H2O's sums, KVzip's maxima, the
// sums of squares of rms.
#pragma once

#include <vector>

#include "eviction/evidence/entry_statistics.h"
#include "winnow/layer_evidence.h"

namespace winnow {

// Returns the fold over rows of the attention weights on every prefix entry: [n_kv_head][n_group * n_prefix].
// log_sum_exp is the rows', [n_rows][n_head].
std::vector<std::vector<float>> fold_prefix(const LayerEvidence& evidence, kernels::ColumnFold fold,
                                            StatisticsRows rows, const float* log_sum_exp);

}  // namespace winnow
