// Shared by the tests of products with quantised weights: a random matrix both in a file's format and as exact numbers,
// and rows rounded to 8 bits.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <random>
#include <vector>

#include "kernels/products/weight_blocks.h"
#include "kernels/reference/weights.h"
#include "kernels/simd/half.h"

namespace winnow::kernels {

// Returns the byte offsets of a format's float16 numbers; those with offset % 4 == 2 are minima.
inline std::vector<std::size_t> half_offsets(WeightBlocks blocks) {
  switch (blocks) {
    case WeightBlocks::kQ4_1:
    case WeightBlocks::kQ5_1:
    case WeightBlocks::kQ4_K:
    case WeightBlocks::kQ5_K:
      return {0, 2};
    case WeightBlocks::kQ2_K:
      return {80, 82};
    case WeightBlocks::kQ3_K:
      return {108};
    case WeightBlocks::kQ6_K:
      return {208};
    case WeightBlocks::kMXFP4:
      return {};
    default:
      return {0};
  }
}

// A matrix of random bytes, or of equal ones; scales are of a usual size, and minima `minimum` times as large.
struct QuantisedMatrix {
  QuantisedMatrix(const WeightBlocksInfo& info, std::int64_t n_in, std::int64_t n_out, std::uint32_t seed,
                  float minimum = 1, std::optional<std::byte> every_byte = {})
      : row_bytes(static_cast<std::size_t>(n_in / info.n_weights) * info.n_bytes),
        blocks(row_bytes * static_cast<std::size_t>(n_out)) {
    std::mt19937 random(seed);
    for (std::byte& byte : blocks) byte = every_byte.value_or(static_cast<std::byte>(random() & 0xFFU));
    std::uniform_real_distribution<float> scale(0.01F, 0.1F);
    for (std::size_t at = 0; at < blocks.size(); at += info.n_bytes) {
      for (const std::size_t offset : half_offsets(info.blocks)) {
        const std::uint16_t half = half_from_float(offset % 4 == 2 ? -scale(random) * minimum : scale(random));
        std::memcpy(&blocks[at + offset], &half, 2);
      }
      // Mostly about 1, sometimes the smallest scale of all, which is subnormal.
      if (info.blocks == WeightBlocks::kMXFP4) {
        blocks[at] = static_cast<std::byte>(random() % 8 == 0 ? random() % 3 : 120 + random() % 8);
      }
    }
    for (std::int64_t i = 0; i < n_out; ++i) {
      const std::vector<double> row = reference::weights(info.blocks, &blocks[static_cast<std::size_t>(i) * row_bytes],
                                                         static_cast<std::size_t>(n_in));
      weights.insert(weights.end(), row.begin(), row.end());
    }
  }

  std::size_t row_bytes;
  std::vector<std::byte> blocks;
  std::vector<double> weights;  // [n_out][n_in]
};

// Returns x as blocks of 32 8-bit integers represent it.
inline std::vector<double> rounded_to_8_bits(const std::vector<float>& x) {
  std::vector<double> out(x.size());
  for (std::size_t block = 0; block < x.size(); block += 32) {
    float most = 0;
    for (std::size_t i = block; i < block + 32; ++i) most = std::max(most, std::fabs(x[i]));
    for (std::size_t i = block; i < block + 32 && most > 0; ++i) {
      out[i] = static_cast<double>(most / 127.0F) * std::nearbyint(x[i] * (127.0F / most));
    }
  }
  return out;
}

}  // namespace winnow::kernels
