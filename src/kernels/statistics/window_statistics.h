// Statistics of the attention of a few query rows (the observation window) over every stored entry, reduced over the
// rows on the fly: no array of size n_rows x n_entries is stored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "winnow/entries.h"

namespace winnow::kernels {

// The statistics for each query head of the GQA group and each column (stored entry i < n_columns). A null pointer: not
// computed.
struct ColumnStatistics {
  std::int32_t n_columns;
  float* mean;      // [n_group][n_columns] mean over the rows of A[row][i]
  float* m2;        // [n_group][n_columns] sum over the rows of (A - mean)^2 (Welford: no cancellation)
  float* max;       // [n_group][n_columns]
  float* last;      // [n_group][n_columns] the last row
  double* entropy;  // [n_group] -sum A ln A over rows x columns, 0 ln 0 = 0, rows not renormalised
};

// Returns the bytes of 64-byte-aligned scratch that any function below with a `scratch` parameter needs.
std::size_t window_statistics_scratch_bytes(const AttentionShape& shape, int n_rows);

// Computes the statistics of A, the softmax over every entry that a row sees (columns beyond n_columns and sink logits
// included).
void window_statistics(const AttentionShape& shape, const HeadEntries& entries, const QueryRows& rows,
                       const ColumnStatistics& out, std::span<std::byte> scratch);

// The functions below compute the statistics by parts of a head's entries, so that several threads can share a head:
// first the row sums of every part, merged in order, then the columns of every part.

// Entries [first, last).
struct EntryRange {
  std::int32_t first;
  std::int32_t last;

  std::int32_t size() const { return last - first; }
};

// The softmax sum of a query row over a part: the largest of its scores (times log2 e), and the sum of 2^(score -
// high), without sink logits, which window_columns adds.
struct RowSum {
  float high = -std::numeric_limits<float>::infinity();
  double weight = 0.0;
};

// Writes the row sums of a part to sums [n_group][n_rows].
void window_row_sums(const AttentionShape& shape, const HeadEntries& entries, const QueryRows& rows, EntryRange part,
                     std::span<RowSum> sums, std::span<std::byte> scratch);

// Merges a part's row sums into `sums`.
void merge_row_sums(std::span<const RowSum> part, std::span<RowSum> sums);

// Writes the columns [part.first, part.last), where part.last is at most out.n_columns; `out.entropy` is that of these
// columns.
//   sums: the merged sums of all entries
void window_columns(const AttentionShape& shape, const HeadEntries& entries, const QueryRows& rows,
                    std::span<const RowSum> sums, EntryRange part, const ColumnStatistics& out,
                    std::span<std::byte> scratch);

// Computes the log-sum-exps of each row's scores with the entries that it sees, without sink logits; -inf if a row sees
// no entry.
void row_log_sum_exps(const AttentionShape& shape, const HeadEntries& entries, const QueryRows& rows,
                      float* out,  // [n_rows][n_group]
                      std::span<std::byte> scratch);

// The fold of a column of attention over the rows: its sum (H2O), the sum of its squares (rms), or its maximum (KVzip).
enum class ColumnFold { kSum, kSquares, kMax };

// Folds A[row][i] = exp(score - log_sum_exp) of every row and every entry i of a part into columns
// [n_group][part.size()], which hold the result of earlier rows, initially 0. It passes over the keys once, block by
// block, with the log-sum-exps that causal_attention saved.
void fold_columns(ColumnFold fold, const AttentionShape& shape, const HeadEntries& entries, const QueryRows& rows,
                  const float* log_sum_exp,  // [n_rows][n_group]
                  EntryRange part, float* columns, std::span<std::byte> scratch);

}  // namespace winnow::kernels
