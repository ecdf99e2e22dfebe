// Tiles of stored rows in shared memory, and how matrix instructions read them. A tile is the keys or values of 64
// slots. It consists of whole pages, whatever the head's first slot is, so that all kernels see the same tiles of a
// head.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cache/cache_shape.h"
#include "device/kernel_plans.h"
#include "device/kernels/simt.h"

namespace winnow::device {

inline constexpr int kTileEntries = 64;
inline constexpr int kTilePages = kTileEntries / kPageEntries;
static_assert(kTileEntries % kPageEntries == 0);

// The two types of stored numbers that matrix instructions can read directly.
struct F16Format {
  // The largest number of the type, to which larger ones are clamped.
  static constexpr float kLargest = 65504.0F;
  // The number of terms of the type, each the remainder of the previous one, that represent a float32 up to rounding.
  static constexpr int kTerms = 2;
  WINNOW_DEVICE static std::uint32_t pack(float low, float high) { return simt::pack_f16(low, high); }
  WINNOW_DEVICE static float low(std::uint32_t two) { return simt::low_f16(two); }
  WINNOW_DEVICE static float high(std::uint32_t two) { return simt::high_f16(two); }
  WINNOW_DEVICE static void multiply(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
    simt::mma_f16(d, a, b);
  }
};

struct BF16Format {
  static constexpr float kLargest = 3.38e38F;
  static constexpr int kTerms = 3;
  WINNOW_DEVICE static std::uint32_t pack(float low, float high) { return simt::pack_bf16(low, high); }
  WINNOW_DEVICE static float low(std::uint32_t two) { return simt::low_bf16(two); }
  WINNOW_DEVICE static float high(std::uint32_t two) { return simt::high_bf16(two); }
  WINNOW_DEVICE static void multiply(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
    simt::mma_bf16(d, a, b);
  }
};

// A tile of rows of up to kDim 16-bit numbers. Its rows are an odd number of 16-byte words apart, so that the eight
// rows of a matrix lie in different banks.
template <int kDim>
struct RowTile {
  static_assert(kDim % 16 == 0);
  static constexpr int kWords = kDim / 8;  // of 16 bytes
  static constexpr int kPitch = kDim * 2 + 16;
  static constexpr int kBytes = kTileEntries * kPitch;
};

// Slots [first, last).
struct SlotRange {
  std::int32_t first;
  std::int32_t last;
};

WINNOW_DEVICE SlotRange slots_of(const HeadTable& table) {
  return {table.first_slot, table.first_slot + table.n_entries};
}

// Returns the page of a tile whose rows this thread copies: the threads of a block are divided among the tile's pages.
template <int kThreads>
WINNOW_DEVICE int page_of_thread() {
  return simt::thread() / (kThreads / kTilePages);
}

// Returns the number of that page in the head, or of the head's last page if it is beyond.
template <int kThreads>
WINNOW_DEVICE int page_in_tile(const HeadTable& table, std::int32_t tile) {
  const int last = (table.first_slot + table.n_entries - 1) / kPageEntries;
  return simt::min(tile * kTilePages + page_of_thread<kThreads>(), last);
}

// Starts the copy of this thread's part of a tile, whose rows are on the page that page_in_tile returns. Slots outside
// the head's entries, which begin `first_slot` slots after the tile's first, and numbers beyond `dim` become zeros.
template <int kDim, int kThreads>
WINNOW_DEVICE void copy_tile(std::byte* tile, const std::byte* rows, int dim, std::int32_t first_slot,
                             std::int32_t n_entries) {
  using Tile = RowTile<kDim>;
  // Neighbouring threads copy neighbouring words of a row: a number of words that divides the row.
  constexpr int kWordThreads = Tile::kWords % 16 == 0 ? 16 : Tile::kWords % 8 == 0 ? 8 : Tile::kWords % 4 == 0 ? 4 : 2;
  constexpr int kRowThreads = kThreads / kTilePages / kWordThreads;
  static_assert(kThreads % kTilePages == 0 && kPageEntries % kRowThreads == 0);
  const int page = page_of_thread<kThreads>();
  const int thread = simt::thread() - page * (kThreads / kTilePages);
  const int first_row = thread / kWordThreads, first_word = thread % kWordThreads;
  tile += (page * kPageEntries + first_row) * Tile::kPitch + first_word * 16;
  unsigned at = static_cast<unsigned>(first_row * dim * 2 + first_word * 16);
  first_slot -= page * kPageEntries + first_row;
  WINNOW_UNROLL
  for (int row = 0; row < kPageEntries; row += kRowThreads) {
    WINNOW_UNROLL
    for (int word = 0; word < Tile::kWords; word += kWordThreads) {
      const bool is_entry = static_cast<unsigned>(row - first_slot) < static_cast<unsigned>(n_entries);
      const bool is_there = is_entry && (first_word + word) * 8 < dim;
      simt::copy_async_16_or_zero(tile + row * Tile::kPitch + word * 16, rows + (at + word * 16), is_there);
    }
    at += static_cast<unsigned>(kRowThreads * dim * 2);
  }
}

// Return a lane's address for the instructions that load four matrices of 8 x 8 numbers, relative to the first row and
// number. Left factor: 16 rows x 16 numbers. Right factor from rows of keys: 16 entries x 16 numbers, with columns [0,
// 8) in words 0 and 1 and columns [8, 16) in words 2 and 3. Right factor from rows of values, transposed: 16 entries x
// 16 numbers, in the same words.
template <int kDim>
WINNOW_DEVICE int left_lane_offset() {
  return (simt::lane() & 15) * RowTile<kDim>::kPitch + (simt::lane() >> 4) * 16;
}
template <int kDim>
WINNOW_DEVICE int key_lane_offset() {
  return ((simt::lane() & 7) + (simt::lane() >> 4) * 8) * RowTile<kDim>::kPitch + (simt::lane() >> 3 & 1) * 16;
}
template <int kDim>
WINNOW_DEVICE int value_lane_offset() {
  return (simt::lane() & 15) * RowTile<kDim>::kPitch + (simt::lane() >> 4) * 16;
}

inline constexpr float kLog2E = 1.44269504088896341F;
inline constexpr float kLn2 = 0.693147180559945309F;
inline constexpr float kHiddenScore = -__builtin_huge_valf();

// Return the row and column of one of a lane's four numbers in the result of a matrix instruction: lane l has columns l
// % 4 * 2 and the next of rows l / 4 (numbers 0 and 1) and l / 4 + 8 (numbers 2 and 3).
WINNOW_DEVICE int fragment_row(int number) { return (simt::lane() >> 2) + (number >> 1) * 8; }
WINNOW_DEVICE int fragment_column(int number) { return (simt::lane() & 3) * 2 + (number & 1); }

// Two or four numbers, or eight 16-bit numbers, that are loaded or stored at once.
struct alignas(8) TwoFloats {
  float x[2];
};
struct alignas(16) FourFloats {
  float x[4];
};
struct alignas(16) FourWords {
  std::uint32_t x[4];
};

// Returns 1 / x, without a slow path for numbers whose reciprocal is not normal; 0 for infinity.
WINNOW_DEVICE float reciprocal(float x) {
#ifdef __CUDA_ARCH__
  return __fdividef(1.0F, x);
#else
  return 1.0F / x;
#endif
}

WINNOW_DEVICE float clamped(float x, float largest) { return simt::min(simt::max(x, -largest), largest); }

}  // namespace winnow::device
