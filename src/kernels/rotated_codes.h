// The entry types r4 and r3: a row is rotated by a Hadamard matrix, which makes its coordinates nearly Gaussian, and
// each coordinate becomes the nearest level of a codebook for N(0, 1) (Lloyd-Max), with one scale a block. Rotation
// before quantisation: QuaRot (Ashkboos et al., 2024).
//
// A block of a row is its scale (float16), then its codes. A code is a sign and the index of a magnitude:
//   4 bits: in groups of 32 (a block of 16 is one group of 16), byte j of a group of g holds code j in its low and
//           j + g / 2 in its high half; bit 3 is the sign
//   3 bits: the magnitudes' two bits, four to a byte from the lowest, then the signs, eight to a byte
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "winnow/entry_type.h"

namespace winnow::kernels {

// 4 for r4, 3 for r3, 0 for every other type.
int code_bits(EntryType type);

// Codes of 4 bits that lie in the same bytes' halves.
inline constexpr int kCodeGroup = 32;

// The level of every code of 4 bits as it is stored.
alignas(64) inline constexpr float kCodeLevels[16] = {
    0.128395F,  0.388048F,  0.656759F,  0.942340F,  1.256231F,  1.618046F,  2.069017F,  2.732590F,
    -0.128395F, -0.388048F, -0.656759F, -0.942340F, -1.256231F, -1.618046F, -2.069017F, -2.732590F};

// Numbers that share a scale: the largest power of two that divides head_dim, at most 128.
int code_block(int head_dim);

// The positive levels of the codebook, ascending: [2^(bits - 1)]. The others are their negatives.
std::span<const float> code_magnitudes(int bits);

// y = H x / sqrt(b) for every block of b numbers, H the Walsh-Hadamard matrix in natural order; its own inverse. In
// place is allowed. The bits are the same on every instruction set.
void rotate_row(const float* x, float* y, int head_dim);

// One row of head_dim numbers <-> its codes. load_coded_row gives the numbers before the rotation, load_rotated_row
// those that were coded.
void store_coded_row(EntryType type, const float* src, std::byte* dst, int head_dim);
void load_coded_row(EntryType type, const std::byte* src, float* dst, int head_dim);
void load_rotated_row(EntryType type, const std::byte* src, float* dst, int head_dim);

// The codes of a row as indices into the whole codebook, ascending levels, and the scales of its blocks (tests, golden
// files).
void unpack_codes(EntryType type, const std::byte* src, int head_dim, std::span<std::uint8_t> codes,
                  std::span<float> scales);

}  // namespace winnow::kernels
