// Conversions and norms of stored rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "winnow/entries.h"

namespace winnow::kernels {

// float32 -> entry type and back, one row of n numbers.
void store_row(EntryType type, const float* src, std::byte* dst, int n);
void load_row(EntryType type, const std::byte* src, float* dst, int n);
// Entry i of a run, [key_dim] or [value_dim]: a key with the origin that it is stored less.
void load_entry(const AttentionShape& shape, const EntryRun& run, RowKind kind, std::int32_t i, float* dst);
// The mean of a head's keys [first, last), as float16: zeros where it is not finite.
//   out: [key_dim]
void store_mean_key(const HeadEntries& entries, int key_dim, std::int32_t first, std::int32_t last, std::byte* out);
// From one entry type to another.
void convert_row(EntryType from, EntryType to, const std::byte* src, std::byte* dst, int n);

// Per stored entry, in order: out [n_entries].
void value_l1_norms(const AttentionShape& shape, const HeadEntries& entries, std::span<float> out);
void value_l2_norms(const AttentionShape& shape, const HeadEntries& entries, std::span<float> out);
void key_l2_norms(const AttentionShape& shape, const HeadEntries& entries, std::span<float> out);

}  // namespace winnow::kernels
