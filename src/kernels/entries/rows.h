// Conversions and norms of stored rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "winnow/entries.h"

namespace winnow::kernels {

// Store one row of n float32 numbers as an entry type, and dequantise one.
void store_row(EntryType type, const float* src, std::byte* dst, int n);
void load_row(EntryType type, const std::byte* src, float* dst, int n);
// Dequantises the key or value of entry i of a run, [key_dim] or [value_dim]; a key with its origin added.
void load_entry(const AttentionShape& shape, const EntryRun& run, RowKind kind, std::int32_t i, float* dst);
// Stores the mean of a head's keys [first, last) as float16; zeros if it is not finite.
//   out: [key_dim]
void store_mean_key(const HeadEntries& entries, int key_dim, std::int32_t first, std::int32_t last, std::byte* out);
// Converts a row of n numbers from one entry type to another.
void convert_row(EntryType from, EntryType to, const std::byte* src, std::byte* dst, int n);

// Compute the norm of every stored entry, in order: out [n_entries].
void value_l1_norms(const AttentionShape& shape, const HeadEntries& entries, std::span<float> out);
void value_l2_norms(const AttentionShape& shape, const HeadEntries& entries, std::span<float> out);
void key_l2_norms(const AttentionShape& shape, const HeadEntries& entries, std::span<float> out);

}  // namespace winnow::kernels
