#include "kernels/reference/weights.h"

#include <array>
#include <cmath>
#include <cstring>

#include "kernels/simd/half.h"

namespace winnow::kernels::reference {
namespace {

constexpr std::array<int, 16> kIq4Values = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
constexpr std::array<double, 16> kMxfp4Values = {0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6};

// One block's bytes.
struct Block {
  const std::byte* at;

  unsigned byte(std::size_t i) const { return static_cast<unsigned>(at[i]); }
  int signed_byte(std::size_t i) const { return static_cast<std::int8_t>(at[i]); }
  unsigned nibble(std::size_t i, bool high) const { return high ? byte(i) >> 4 : byte(i) & 15; }
  unsigned bits(std::size_t i, std::size_t shift, unsigned mask) const { return byte(i) >> shift & mask; }
  double half(std::size_t i) const {
    std::uint16_t bits16;
    std::memcpy(&bits16, at + i, sizeof(bits16));
    return static_cast<double>(float_from_half(bits16));
  }
};

double small_block_weight(WeightBlocks blocks, const Block& block, std::size_t i) {
  const bool high = i >= 16;
  const std::size_t j = i % 16;
  // Returns bit i of the four bytes from `at` on, as the fifth bit.
  const auto fifth = [&](std::size_t at) { return static_cast<int>(block.bits(at + i / 8, i % 8, 1) << 4); };
  switch (blocks) {
    case WeightBlocks::kQ4_0:
      return block.half(0) * (static_cast<int>(block.nibble(2 + j, high)) - 8);
    case WeightBlocks::kQ4_1:
      return block.half(0) * block.nibble(4 + j, high) + block.half(2);
    case WeightBlocks::kQ5_0:
      return block.half(0) * (static_cast<int>(block.nibble(6 + j, high)) + fifth(2) - 16);
    case WeightBlocks::kQ5_1:
      return block.half(0) * (static_cast<int>(block.nibble(8 + j, high)) + fifth(4)) + block.half(2);
    case WeightBlocks::kQ8_0:
      return block.half(0) * block.signed_byte(2 + i);
    case WeightBlocks::kIQ4_NL:
      return block.half(0) * kIq4Values[block.nibble(2 + j, high)];
    default:  // mxfp4: a power of two, and 4-bit floats
      return std::ldexp(kMxfp4Values[block.nibble(1 + j, high)], static_cast<int>(block.byte(0)) - 127);
  }
}

// Returns the six bits of scale (or minimum) j of the 12 bytes of q4_K and q5_K.
unsigned k_scale(const Block& block, std::size_t j, bool minimum) {
  const std::size_t first = minimum ? 4 : 0;
  if (j < 4) return block.byte(4 + first + j) & 63;
  return block.nibble(4 + 8 + j - 4, minimum) | block.byte(4 + first + j - 4) >> 6 << 4;
}

double large_block_weight(WeightBlocks blocks, const Block& block, std::size_t i) {
  const std::size_t b = i / 32, j = i % 32;             // block of 32 weights and the place in it
  const std::size_t half = i / 128, b_of_half = b % 4;  // 128 weights share bytes in the two-bit and six-bit formats
  switch (blocks) {
    case WeightBlocks::kQ2_K: {
      const unsigned scale = block.byte(i / 16);
      return block.half(80) * (scale & 15) * block.bits(16 + 32 * half + j, 2 * b_of_half, 3) -
             block.half(82) * (scale >> 4);
    }
    case WeightBlocks::kQ3_K: {
      const std::size_t s = i / 16;
      const unsigned low = block.nibble(96 + s % 8, s >= 8), high = block.bits(104 + s % 4, 2 * (s / 4), 3);
      const int scale = static_cast<int>(low | high << 4) - 32;
      const int q = static_cast<int>(block.bits(32 + 32 * half + j, 2 * b_of_half, 3) | block.bits(j, b, 1) << 2) - 4;
      return block.half(108) * scale * q;
    }
    case WeightBlocks::kQ4_K:
      return block.half(0) * k_scale(block, b, false) * block.nibble(16 + 32 * (b / 2) + j, b % 2 == 1) -
             block.half(2) * k_scale(block, b, true);
    case WeightBlocks::kQ5_K: {
      const unsigned q = block.nibble(48 + 32 * (b / 2) + j, b % 2 == 1) | block.bits(16 + j, b, 1) << 4;
      return block.half(0) * k_scale(block, b, false) * q - block.half(2) * k_scale(block, b, true);
    }
    case WeightBlocks::kQ6_K: {
      const unsigned low = block.nibble(64 * half + 32 * (b_of_half % 2) + j, b_of_half >= 2);
      const unsigned high = block.bits(128 + 32 * half + j, 2 * b_of_half, 3);
      return block.half(208) * block.signed_byte(192 + i / 16) * (static_cast<int>(low | high << 4) - 32);
    }
    default: {  // iq4_xs
      const unsigned low = block.nibble(4 + b / 2, b % 2 == 1), high = block.bits(2 + b / 4, 2 * (b % 4), 3);
      const int scale = static_cast<int>(low | high << 4) - 32;
      return block.half(0) * scale * kIq4Values[block.nibble(8 + 16 * b + j % 16, j >= 16)];
    }
  }
}

}  // namespace

std::vector<double> weights(WeightBlocks blocks, const std::byte* src, std::size_t n) {
  const WeightBlocksInfo& info = weight_blocks_info(blocks);
  const auto size = static_cast<std::size_t>(info.n_weights);
  std::vector<double> out;
  for (std::size_t i = 0; i < n; ++i) {
    const Block block{src + i / size * info.n_bytes};
    out.push_back(size == 32 ? small_block_weight(blocks, block, i % size)
                             : large_block_weight(blocks, block, i % size));
  }
  return out;
}

}  // namespace winnow::kernels::reference
