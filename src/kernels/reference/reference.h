// Reference kernels in the simplest form: scalar, in double precision, with all intermediate results stored. The fast
// kernels are tested against them; they are not part of the library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/attention/attention.h"
#include "winnow/entries.h"

namespace winnow::kernels::reference {

// Returns the n numbers of one stored row.
std::vector<double> row(EntryType type, const std::byte* src, int n);

// Returns x as float16 by IEEE 754 (nearest, ties to even), except that numbers beyond its range become its largest.
std::uint16_t half_bits(double x);

// The softmax weights of query row r and head g of the group over all entries (0: not visible), and their log-sum-exp.
struct Weights {
  std::vector<double> a;  // [n_entries]
  double log_sum_exp;     // -inf: the row sees no entry
};
Weights weights(const AttentionShape& shape, const HeadEntries& entries, const QueryRows& rows, int r, int g);

struct CausalResult {
  std::vector<double> out;          // [n_rows][n_group][value_dim]
  std::vector<double> log_sum_exp;  // [n_rows][n_group]
};
CausalResult causal_attention(const AttentionShape& shape, const HeadEntries& entries, const QueryRows& rows);

// Returns the normalised output, [n_group][value_dim].
std::vector<double> decode_attention(const AttentionShape& shape, const DecodeSlices& slices);

struct WindowResult {
  std::vector<double> mean, m2, max, last;  // [n_group][n_columns]
  std::vector<double> entropy;              // [n_group]
};
WindowResult window_statistics(const AttentionShape& shape, const HeadEntries& entries, const QueryRows& rows,
                               int n_columns);

// [n_group][n_columns]
std::vector<double> column_sums(const AttentionShape& shape, const HeadEntries& entries, const QueryRows& rows,
                                int n_columns);

// [n_entries]
std::vector<double> value_l1_norms(const AttentionShape& shape, const HeadEntries& entries);
std::vector<double> value_l2_norms(const AttentionShape& shape, const HeadEntries& entries);
std::vector<double> key_l2_norms(const AttentionShape& shape, const HeadEntries& entries);

// Returns norms [n_entries] for w_o [n_group][value_dim][n_embd].
std::vector<double> projected_value_norms(const AttentionShape& shape, const HeadEntries& entries,
                                          std::span<const float> w_o, int n_embd);

struct MomentSums {
  std::vector<double> sum;    // [head_dim]
  std::vector<double> outer;  // [head_dim][head_dim]
};
MomentSums query_moments(const float* q, std::int64_t row_stride, int n_rows, int head_dim);

// [n_group][n_columns]
std::vector<double> expected_scores(const AttentionShape& shape, const HeadEntries& entries, int n_columns,
                                    std::span<const double> mean, std::span<const double> covariance);

}  // namespace winnow::kernels::reference
