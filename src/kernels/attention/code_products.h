// Products of decoding with entries of r4, r3 and q8_0 by dot products of bytes: queries with keys, weights with
// values. A part of decode_attention, which chooses them by the current instruction set.
//
// The codebook's levels of r4 are taken as integers of 8 bits: off by 0.0032 of a coordinate's standard deviation, root
// mean square, where the codes themselves are off by 0.098 (of r3: 0.0011 and 0.186). So are the queries, off by some
// 0.007 of theirs. Beside
// q8_0, whose own error is as small, queries have 16 bits, in two bytes. So have weights: many small ones add up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/simd/read_ahead.h"
#include "winnow/entry_type.h"

namespace winnow::kernels {

// The types that may have them.
inline constexpr EntryType kCodeProductTypes[] = {EntryType::kR4, EntryType::kR3, EntryType::kQ8_0};

// Whether the current instruction set has them (AVX512-VNNI and AVX512-VBMI), for rows of so many numbers.
bool has_code_products(EntryType type, int head_dim);

// Bytes of a group's queries as score_codes takes them, 64-byte aligned, for any type.
std::size_t coded_queries_bytes(int n_group, int head_dim);

// queries: [n_group][head_dim], rotated as the type's codes are, times the softmax scale
void pack_coded_queries(EntryType type, const float* queries, int n_group, int head_dim, std::byte* out);

// n rows of codes, `stride` bytes apart; n is at most kEntryBlock.
struct CodedRows {
  const std::byte* data;
  std::size_t stride;
  std::int32_t n;

  std::size_t bytes() const { return static_cast<std::size_t>(n) * stride; }
};

// scores [n_group][kEntryBlock] of the keys; queries: packed for their type
void score_codes(EntryType type, const std::byte* queries, int n_group, int head_dim, const CodedRows& keys,
                 Ahead& ahead, float* scores);

// Adds the values, times weights [n_group][kEntryBlock], to sums [n_group][head_dim]. The rows of all pieces come one
// after the other, kEntryBlock at most; all pieces but the last have a multiple of four.
void add_codes(EntryType type, const float* weights, int n_group, int head_dim, std::span<const CodedRows> values,
               Ahead& ahead, float* sums);

}  // namespace winnow::kernels
