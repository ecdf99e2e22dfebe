// The gated delta rule (Gated DeltaNet, arXiv 2412.06464, eq. 10): a head's state S is a matrix that maps keys to
// values; every row decays it, replaces the value that it holds for the row's key, and reads it with the row's query.
//   S <- g S;  S <- S + k (b (v - S^T k))^T;  o = S^T q / sqrt(d)
#pragma once

#include <cstdint>

namespace winnow::kernels {

inline constexpr int kDeltaUnit = 16;  // a head's dimension is a multiple of it

// The parameters of a layer's delta rule.
struct DeltaRule {
  std::int64_t head_dim;                    // of keys and values
  std::int64_t n_key_heads, n_value_heads;  // value head h reads key head h % n_key_heads
  float eps;                                // added to the squared length of queries and keys, which are normalised
  const float* decay;                       // [n_value_heads] negative
  const float* decay_bias;                  // [n_value_heads]
};

// Runs value head `head` over n_rows rows of one sequence.
//   qkv: [n_rows][(2 * n_key_heads + n_value_heads) * head_dim]; alpha, beta: [n_rows][n_value_heads], where
//   g = exp(decay * softplus(alpha + decay_bias)) and b = sigmoid(beta); out: [n_rows][n_value_heads][head_dim]
//   before, after: [n_value_heads][head_dim of values][head_dim of keys]; may be the same memory
void delta_rule(const DeltaRule& rule, const float* qkv, const float* alpha, const float* beta, std::int64_t n_rows,
                const float* before, float* after, float* out, std::int64_t head);

}  // namespace winnow::kernels
