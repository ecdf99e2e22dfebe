// Scores nearly as exact as float32's by AMX's products of bfloat16: every operand is the sum of two bfloat16 numbers
// with 16 bits of it, and three of the four products are summed (the fourth is below 2^-16 of the first). Part of
// window_statistics, which chooses them by the current instruction set: three products of AMX are several times as fast
// as one of float32.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/entries/run_cursor.h"
#include "winnow/entries.h"

namespace winnow::kernels {

inline constexpr std::int32_t kSplitStrip = 32;  // query rows that pass over a block together

// Returns whether the current instruction set has AMX and the entries have fewer bits than float32.
bool prefers_split_scores(const AttentionShape& shape);

// Returns the bytes of n_rows packed query rows or keys, n_rows a multiple of kSplitStrip.
std::size_t split_rows_bytes(int head_dim, std::int32_t n_rows);

// Packs queries [n_rows][head_dim], n_rows a multiple of kSplitStrip, into 64-byte-aligned memory.
void pack_split_queries(const float* queries, int head_dim, std::int32_t n_rows, std::byte* packed);

// Writes the scores of the packed query rows with entries [first, first + n) to scores [n_rows][stride], stride a
// multiple of 16; columns from n up to a multiple of kSplitStrip are 0.
//   keys: memory for the packed keys
void split_scores(const AttentionShape& shape, RunCursor& cursor, std::int32_t first, std::int32_t n,
                  const std::byte* queries, std::int32_t n_rows, std::byte* keys, float* scores, std::ptrdiff_t stride);

}  // namespace winnow::kernels
