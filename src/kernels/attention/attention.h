// Attention over the stored entries of one KV head. All kernels accumulate in float32 and run on the calling thread;
// the caller splits the work. Dispatched once per call to the best instruction set (WINNOW_ISA forces one).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/attention/softmax_state.h"
#include "winnow/entries.h"

namespace winnow::kernels {

// Blocked causal attention for many rows (prefill, appended turns). Best called with blocks of kCausalBlockRows rows:
// the more rows, the less it matters that each call packs all keys and values that its rows see. On an instruction set
// with products of bfloat16, eight rows or more of entries that are not float32 are computed by these (bf16_attention.h
// says how exact they are); all other calls in float32.
inline constexpr int kCausalBlockRows = 128;

struct CausalOutput {
  float* out;               // row r, query head g: out + r * row_stride + g * value_dim
  std::int64_t row_stride;  // in floats
  float* log_sum_exp;       // [n_rows][n_group] natural log of the softmax denominators (sinks included), or null
};

// Bytes of 64-byte-aligned scratch that one call needs; depends on the shape alone.
std::size_t causal_attention_scratch_bytes(const AttentionShape& shape);

void causal_attention(const AttentionShape& shape, const HeadEntries& entries, const QueryRows& rows,
                      const CausalOutput& output, std::span<std::byte> scratch);

// One query row of a whole group against slices of a head's entries, one after the other: each K/V row is read once for
// all n_group query heads, and what the queries are turned into serves all slices. A slice's sums are the same
// whichever others go with it.
struct DecodeSlices {
  const float* q;  // [n_group][key_dim], rotated
  HeadEntries entries;
  std::int32_t first;  // entries [first, last); none is allowed
  std::int32_t last;
  std::int32_t size;      // entries of a slice, at least one; the last one may have fewer
  std::int32_t position;  // of the query row (sliding window)

  std::int32_t count() const { return std::max(1, (last - first + size - 1) / size); }
};

// out: of all the slices. Sinks are not in them: finish_attention adds them once.
void decode_attention(const AttentionShape& shape, const DecodeSlices& slices, const GroupSoftmax& out,
                      std::span<std::byte> scratch);

// Bytes of 64-byte-aligned scratch that one call needs; depends on the group and the size of keys alone.
std::size_t decode_attention_scratch_bytes(const AttentionShape& shape);

// Merges `from` into `into`, both of one slice of the same head. `from` is used up.
void merge(const AttentionShape& shape, const GroupSoftmax& into, const GroupSoftmax& from);

// Adds the sinks to the state of all of a head's entries and writes the normalised output: zeros where there is nothing
// to attend to. The state is used up.
void finish_attention(const AttentionShape& shape, const GroupSoftmax& state,
                      float* out);  // [n_group][value_dim]

}  // namespace winnow::kernels
