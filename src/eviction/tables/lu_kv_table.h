// The table of LU-KV ("Predicting Future Utility"): the calibrated profile Phi, interpolated linearly at the target
// ratio T / (N * Hkv * L), with Phi(0) = 0 and Phi(1) = 1. A head's weight is Phi * N, at least its sinks and window.
#pragma once

#include "winnow/head_table.h"
#include "winnow/option.h"

namespace winnow {

const HeadTable& lu_kv_table();
std::vector<Option> lu_kv_options();

}  // namespace winnow
