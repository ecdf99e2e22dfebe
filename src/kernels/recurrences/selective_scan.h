// Mamba-2's selective scan (arXiv 2405.21060, eq. 1): a head's state S is a matrix that maps keys to values; every row
// decays it, adds its value at its key, and reads it with its query.
//   S <- exp(d a) S + d x B^T;  y = S C + s x,  where d = softplus(step + step_bias)
// ggml_ssm_scan computes the same, but copies all states to its output; here a sequence's state is updated in place.
#pragma once

#include <cstdint>

namespace winnow::kernels {

inline constexpr int kScanUnit = 16;  // a key's dimension is a multiple of it

// The parameters of a layer's scan.
struct SelectiveScan {
  std::int64_t key_dim, value_dim;
  std::int64_t n_key_heads, n_value_heads;  // value heads share key heads in order: the first n_value_heads /
                                            // n_key_heads of them read key head 0
  const float* decay;                       // [n_value_heads] a, negative
  const float* step_bias;                   // [n_value_heads]
  const float* skip;                        // [n_value_heads] s
};

// Runs value head `head` over n_rows rows of one sequence.
//   rows: [n_rows][n_value_heads * value_dim + 2 * n_key_heads * key_dim], x, B and C; steps: [n_rows][n_value_heads];
//   out: [n_rows][n_value_heads][value_dim]
//   before, after: [n_value_heads][value_dim][key_dim]; may be the same memory
void selective_scan(const SelectiveScan& scan, const float* rows, const float* steps, std::int64_t n_rows,
                    const float* before, float* after, float* out, std::int64_t head);

}  // namespace winnow::kernels
