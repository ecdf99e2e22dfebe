// Attention over the stored entries of one KV head. All kernels accumulate in float32 and run on the calling thread;
// the caller splits the work. Dispatched once per call to the best instruction set (WINNOW_ISA forces one).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/entries.h"

namespace winnow::kernels {

// Blocked causal attention for many rows (prefill, appended turns). Best called with blocks of kCausalBlockRows rows:
// the more rows, the less it matters that each call packs all keys and values that its rows see. On an instruction set
// with products of bfloat16, eight rows or more of entries that are not float32 are computed by these (bf16_attention.h
// says how exact they are); all other calls in float32.
inline constexpr int kCausalBlockRows = 128;

struct CausalOutput {
  float* out;               // row r, query head g: out + r * row_stride + g * head_dim
  std::int64_t row_stride;  // in floats
  float* log_sum_exp;       // [n_rows][n_group] natural log of the softmax denominators, or null if not wanted
};

// Bytes of 64-byte-aligned scratch that one call needs; depends on the shape alone.
std::size_t causal_attention_scratch_bytes(const AttentionShape& shape);

void causal_attention(const AttentionShape& shape, const HeadEntries& entries, const QueryRows& rows,
                      const CausalOutput& output, std::span<std::byte> scratch);

// One query row of a whole group against the slice [first, last) of a head's entries: each K/V row is read once for all
// n_group query heads. Partial results of several slices are merged with merge_partials.
struct DecodeSlice {
  const float* q;  // [n_group][head_dim], rotated
  HeadEntries entries;
  std::int32_t first;  // entries [first, last); the empty slice is allowed
  std::int32_t last;
  std::int32_t position;  // of the query row (sliding window)
};

// The online-softmax state of one (slice, query head): max, sum, then acc[head_dim], all float32, unnormalised:
// sum = sum_i exp(s_i - max), acc = sum_i exp(s_i - max) v_i. The empty state is {-inf, 0, 0...}.
constexpr std::size_t partial_floats(int head_dim) { return 2 + static_cast<std::size_t>(head_dim); }

// Bytes of 64-byte-aligned scratch that one call needs; depends on the group and the head size alone.
std::size_t decode_attention_scratch_bytes(const AttentionShape& shape);

void decode_attention(const AttentionShape& shape, const DecodeSlice& slice,
                      float* partials,  // [n_group][partial_floats]
                      std::span<std::byte> scratch);

// Merges the partials of `n_slices` slices of one head and writes the normalised output; all-empty gives zeros.
void merge_partials(const AttentionShape& shape, const float* partials,  // [n_slices][n_group][partial_floats]
                    int n_slices,
                    float* out);  // [n_group][head_dim]

}  // namespace winnow::kernels
