// Moments of queries, and the expected attention of Gaussian queries with these moments (Expected Attention, arXiv
// 2510.00636).
#pragma once

#include <cstdint>
#include <span>

#include "winnow/entries.h"

namespace winnow::kernels {

// Adds sum_r q_r to sum [head_dim] and sum_r q_r q_r' to outer [head_dim][head_dim]. Products of up to 64 rows are
// summed in float32 (with a relative error below 1e-5 of the largest of their sums), all else in double precision.
//   q: row r at q + r * row_stride, [head_dim]
void add_query_moments(const float* q, std::int64_t row_stride, std::int32_t n_rows, int head_dim,
                       std::span<double> sum, std::span<double> outer);

// Computes the logarithm of the expected exponential of the scores, for query head g of the GQA group and entry i of
// the first n_columns:
//   out[g][i] = scale mu_g' k_i + scale^2 k_i' Sigma_g k_i / 2
// It is computed in double precision, since the terms of the quadratic form cancel.
//   mean: [n_group][head_dim]; covariance: [n_group][head_dim][head_dim], symmetric; out: [n_group][n_columns]
void expected_scores(const AttentionShape& shape, const HeadEntries& entries, std::int32_t n_columns,
                     std::span<const double> mean, std::span<const double> covariance, std::span<double> out);

}  // namespace winnow::kernels
