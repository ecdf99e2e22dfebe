// Attention columns folded over many query rows whose log-sum-exps the prefill saved: H2O's sums, KVzip's
// maxima, the squares of rms.
#pragma once

#include <functional>
#include <vector>

#include "kernels/statistics/window_statistics.h"
#include "winnow/layer_evidence.h"

namespace winnow {

// rows_of(head): a head's query rows. log_sum_exp: theirs, [n_rows][n_head].
// -> [n_kv_head][n_group * n_prefix]
std::vector<std::vector<float>> fold_prefix(const LayerEvidence& evidence, kernels::ColumnFold fold,
                                            const std::function<kernels::QueryRows(int head)>& rows_of,
                                            const float* log_sum_exp);

}  // namespace winnow
