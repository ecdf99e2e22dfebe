// Products of a decoding step with entries of r4, r3 and q8_0, as dot products of bytes: queries with keys, weights
// with values. Part of decode_attention, which chooses them by the current instruction set.
//
// The codebook's levels are rounded to 8-bit integers, with an error of 0.0032 of a coordinate's standard deviation
// (root mean square) for r4, whose codes have an error of 0.098, and of 0.0011 for r3, whose codes have an error of
// 0.186. Queries are rounded to 8-bit integers, too, with an error of about 0.007 of their standard deviation; for
// q8_0, whose own error is as small, they have 16 bits in two bytes. Weights have 16 bits, since many small ones are
// summed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/simd/read_ahead.h"
#include "winnow/entry_type.h"

namespace winnow::kernels {

// The entry types that can have these products.
inline constexpr EntryType kCodeProductTypes[] = {EntryType::kR4, EntryType::kR3, EntryType::kQ8_0};

// Returns whether the current instruction set has these products (AVX512-VNNI and AVX512-VBMI) for rows of head_dim
// numbers.
bool has_code_products(EntryType type, int head_dim);

// Returns the bytes of a group's packed queries, 64-byte aligned, enough for any type.
std::size_t coded_queries_bytes(int n_group, int head_dim);

// Packs the queries of a group for score_codes.
//   queries: [n_group][head_dim], rotated as the type's codes are, times the softmax scale
void pack_coded_queries(EntryType type, const float* queries, int n_group, int head_dim, std::byte* out);

// n rows of codes, `stride` bytes apart; n is at most kEntryBlock.
struct CodedRows {
  const std::byte* data;
  std::size_t stride;
  std::int32_t n;

  std::size_t bytes() const { return static_cast<std::size_t>(n) * stride; }
};

// Writes the scores [n_group][kEntryBlock] of the keys. queries: packed for the keys' type.
void score_codes(EntryType type, const std::byte* queries, int n_group, int head_dim, const CodedRows& keys,
                 Ahead& ahead, float* scores);

// Adds the values, times weights [n_group][kEntryBlock], to sums [n_group][head_dim]. The pieces' rows are consecutive
// and kEntryBlock at most; all pieces except the last have a multiple of four rows.
void add_codes(EntryType type, const float* weights, int n_group, int head_dim, std::span<const CodedRows> values,
               Ahead& ahead, float* sums);

}  // namespace winnow::kernels
