// Kernels by products of bfloat16 with sums in float32, for entries of fewer bits than float32. Part of
// causal_attention, fold_columns and projected_value_norms, which choose them by the current instruction set.
//
// Queries (times the softmax scale), keys, values and softmax weights are rounded to bfloat16; maxima, exponents and
// sums are float32. Against exact arithmetic a score is off by about 2^-9 of the products' root mean square, so an
// output or a weight by 1e-2 of its size where scores are of the order of 1, and log_sum_exp by as much as a score
// (3e-3 there).
#pragma once

#include <cstddef>
#include <span>

#include "kernels/attention.h"
#include "kernels/isa.h"
#include "kernels/window_statistics.h"

namespace winnow::kernels {

// Whether the current instruction set has the products. Entries of float32 never take this path: their results stay as
// exact as those of the other instruction sets. The number of rows has no say: what a row comes to is then the same
// bits whether it was read with a whole prompt or alone behind one that was kept.
bool prefers_bf16_attention(const AttentionShape& shape);

std::size_t bf16_attention_scratch_bytes(const AttentionShape& shape);

void bf16_attention(Bf16Unit unit, const AttentionShape& shape, const HeadEntries& entries, const QueryRows& rows,
                    const CausalOutput& output, std::span<std::byte> scratch);

// fold_columns of window_statistics.h for calls that prefer the products of bfloat16. A column is off by 1e-2 of its
// size at most where scores are of the order of 1, and rows that bf16_attention computed still add up to 1.
std::size_t bf16_columns_scratch_bytes(const AttentionShape& shape, int n_rows);

void bf16_fold_columns(Bf16Unit unit, ColumnFold fold, const AttentionShape& shape, const HeadEntries& entries,
                       const QueryRows& rows, const float* log_sum_exp, std::int32_t n_columns, float* columns,
                       std::span<std::byte> scratch);

// projected_value_norms of rows.h, for entries of fewer bits than float32: values and W_O are rounded to bfloat16. A
// norm adds up the absolute sums of n_embd columns, whose errors cancel: it is off by some 1e-4 of its size.
bool prefers_bf16_norms(const AttentionShape& shape);

void bf16_projected_norms(Bf16Unit unit, const AttentionShape& shape, const HeadEntries& entries,
                          std::span<const float> w_o, int n_embd, std::span<float> out);

}  // namespace winnow::kernels
