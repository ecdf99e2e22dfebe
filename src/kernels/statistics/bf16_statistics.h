// Statistics of entries by products of bfloat16 with sums in float32, rounded as in bf16_attention.h. Part of
// fold_columns, row_log_sum_exps and projected_value_norms, which choose them by the current instruction set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/attention/attention.h"
#include "kernels/simd/isa.h"
#include "kernels/statistics/window_statistics.h"

namespace winnow::kernels {

// The bfloat16 forms of fold_columns and row_log_sum_exps (window_statistics.h), for calls where
// prefers_bf16_attention(). A column has a relative error of at most 1e-2 if scores are of the order of 1, and rows
// whose log-sum-exps were computed here or by bf16_attention still add up to 1. The first function returns the bytes of
// 64-byte-aligned scratch that the others need.
std::size_t bf16_columns_scratch_bytes(const AttentionShape& shape, int n_rows);

void bf16_fold_columns(Bf16Unit unit, ColumnFold fold, const AttentionShape& shape, const HeadEntries& entries,
                       const QueryRows& rows, const float* log_sum_exp, EntryRange part, float* columns,
                       std::span<std::byte> scratch);

void bf16_row_log_sum_exps(Bf16Unit unit, const AttentionShape& shape, const HeadEntries& entries,
                           const QueryRows& rows, float* out, std::span<std::byte> scratch);

// The bfloat16 form of projected_value_norms (projected_norms.h), for entries of fewer bits than float32: values and
// W_O are rounded to bfloat16. A norm has a relative error of about 1e-4: it is the sum of the absolute values of
// n_embd columns, whose errors cancel. The first function returns whether it is used.
bool prefers_bf16_norms(const AttentionShape& shape);

void bf16_projected_norms(Bf16Unit unit, const AttentionShape& shape, const HeadEntries& entries,
                          std::span<const float> w_o, int n_embd, std::span<float> out);

}  // namespace winnow::kernels
