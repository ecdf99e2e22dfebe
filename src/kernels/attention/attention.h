// Attention over the stored entries of one KV head. All kernels accumulate in float32 and run on the calling thread;
// the caller splits the work. Each call dispatches once to the best instruction set (WINNOW_ISA forces one).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/attention/softmax_state.h"
#include "winnow/entries.h"

namespace winnow::kernels {

// The number of rows that causal_attention is best called with: each call packs all keys and values that its rows see,
// so its cost is spread over the rows.
inline constexpr int kCausalBlockRows = 128;

// The memory to which causal_attention writes.
struct CausalOutput {
  float* out;               // row r, query head g: out + r * row_stride + g * value_dim
  std::int64_t row_stride;  // in floats
  float* log_sum_exp;       // [n_rows][n_group] natural log of the softmax denominators (sinks included), or null
};

// Returns the bytes of 64-byte-aligned scratch that one call needs, which depend on the shape alone.
std::size_t causal_attention_scratch_bytes(const AttentionShape& shape);

// Computes blocked causal attention of many rows (prefill, appended turns). If the instruction set has products of
// bfloat16, these compute entries that are not float32 (bf16_attention.h gives the error); otherwise products are in
// float32.
void causal_attention(const AttentionShape& shape, const HeadEntries& entries, const QueryRows& rows,
                      const CausalOutput& output, std::span<std::byte> scratch);

// One query row of a GQA group and the slices of a head's entries that it attends to, one after the other: each K/V row
// is read once for all n_group query heads, and the packed queries serve all slices. A slice's sums do not depend on
// the other slices.
struct DecodeSlices {
  const float* q;  // [n_group][key_dim], rotated
  HeadEntries entries;
  std::int32_t first;  // entries [first, last), possibly empty
  std::int32_t last;
  std::int32_t size;      // entries of a slice, at least one; the last one may have fewer
  std::int32_t position;  // position of the query row (for the sliding window)

  std::int32_t count() const { return std::max(1, (last - first + size - 1) / size); }
};

// Writes the online softmax states of the query heads over each slice to `out`, without sink logits: finish_attention
// adds these once.
void decode_attention(const AttentionShape& shape, const DecodeSlices& slices, const GroupSoftmax& out,
                      std::span<std::byte> scratch);

// Returns the bytes of 64-byte-aligned scratch that one call needs, which depend on the group and the size of keys
// alone.
std::size_t decode_attention_scratch_bytes(const AttentionShape& shape);

// Merges `from` into `into`, the states of two slices of the same head. `from` is left undefined.
void merge(const AttentionShape& shape, const GroupSoftmax& into, const GroupSoftmax& from);

// Adds the sink logits to the state of all of a head's entries and writes the normalised output, or zeros if there is
// no entry to attend to. The state is left undefined.
void finish_attention(const AttentionShape& shape, const GroupSoftmax& state,
                      float* out);  // [n_group][value_dim]

}  // namespace winnow::kernels
