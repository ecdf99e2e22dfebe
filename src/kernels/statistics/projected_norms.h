// The value term of CriticalKV (arXiv 2502.03805, section 4).
#pragma once

#include <span>

#include "winnow/entries.h"

namespace winnow::kernels {

// Computes out[i] = mean over the group's heads of || v_i W_O[h] ||_1 in blocks of entries; no array of size n_entries
// x n_embd is stored.
//   w_o: the slices of the group's heads, [n_group][value_dim][n_embd], float32
//   out: [n_entries]
void projected_value_norms(const AttentionShape& shape, const HeadEntries& entries, std::span<const float> w_o,
                           int n_embd, std::span<float> out);

}  // namespace winnow::kernels
