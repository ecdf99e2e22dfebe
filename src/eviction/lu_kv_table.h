// LU-KV ("Predicting Future Utility"): the calibrated profile Phi, interpolated linearly at the target ratio
// T / (N * Hkv * L), with Phi(0) = 0 and Phi(1) = 1. A head's weight is Phi * N, at least its sinks and window.
#pragma once

#include "eviction/head_table.h"

namespace winnow {

const HeadTable& lu_kv_table();

}  // namespace winnow
