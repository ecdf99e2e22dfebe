// The entry types r4 and r3: a row is rotated by a Hadamard matrix, which makes its coordinates nearly Gaussian, and
// each coordinate is quantised to the nearest level of a codebook for N(0, 1) (Lloyd-Max), with one scale per block.
// Rotation before quantisation: QuaRot (Ashkboos et al., 2024).
//
// A block of a row is its scale (float16), then its codes in groups of 32 (a block of 16 is one group of 16). A code is
// a sign and the index of a magnitude. Of a group of g
//   4 bits: byte j holds code j in its low and j + g / 2 in its high half; bit 3 is the sign
//   3 bits: codes 8 i to 8 i + 7 are 24 bits from the lowest; bit 2 is the sign. These 24 bits are bytes 4 i to 4 i + 2
//           of a group of 32, and for the last eight bytes 3, 7 and 11; in a group of 16 they follow each other
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "winnow/entry_type.h"

namespace winnow::kernels {

class CodeFeedback;

// Returns the bits of a code: 4 for r4, 3 for r3, 0 for every other type.
int code_bits(EntryType type);

// The number of codes in a group, which share bytes.
inline constexpr int kCodeGroup = 32;

// The level of every 4-bit code in stored order, and of every 3-bit code, listed twice.
alignas(64) inline constexpr float kLevels4[16] = {
    0.128395F,  0.388048F,  0.656759F,  0.942340F,  1.256231F,  1.618046F,  2.069017F,  2.732590F,
    -0.128395F, -0.388048F, -0.656759F, -0.942340F, -1.256231F, -1.618046F, -2.069017F, -2.732590F};
alignas(64) inline constexpr float kLevels3[16] = {
    0.245094F, 0.756005F, 1.343909F, 2.151946F, -0.245094F, -0.756005F, -1.343909F, -2.151946F,
    0.245094F, 0.756005F, 1.343909F, 2.151946F, -0.245094F, -0.756005F, -1.343909F, -2.151946F};

// Returns the number of numbers that share a scale: the largest power of two that divides head_dim, at most 128.
int code_block(int head_dim);

// Returns the positive levels of the codebook, ascending, [2^(bits - 1)]. The others are their negatives.
std::span<const float> code_magnitudes(int bits);

// Computes y = H x / sqrt(b) for every block of b numbers, H the Walsh-Hadamard matrix in natural order; it is its own
// inverse. x and y may be the same memory. The bits are the same on every instruction set.
void rotate_row(const float* x, float* y, int head_dim);

// Quantise and dequantise one row of head_dim numbers: load_coded_row gives the numbers before the rotation,
// load_rotated_row those after it.
void store_coded_row(EntryType type, const float* src, std::byte* dst, int head_dim);
void load_coded_row(EntryType type, const std::byte* src, float* dst, int head_dim);
void load_rotated_row(EntryType type, const std::byte* src, float* dst, int head_dim);

// Quantises n rows [n][head_dim], one to each target, such that queries with the feedback's second moment see the least
// error (code_feedback.h). Scales are those of store_coded_row. A row's codes do not depend on the other rows; two
// instruction sets may round a number half-way between two levels differently.
void store_coded_rows(EntryType type, const CodeFeedback& feedback, const float* rows,
                      std::span<std::byte* const> targets);

// Reads the codes of a row as indices into the whole codebook, ascending levels, and the scales of its blocks (for
// tests and golden files).
void unpack_codes(EntryType type, const std::byte* src, int head_dim, std::span<std::uint8_t> codes,
                  std::span<float> scales);

}  // namespace winnow::kernels
