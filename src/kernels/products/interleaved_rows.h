// Interleaves sixteen rows of a quantised weight matrix: a vector then loads the same place of every row at once, while
// separate rows must be transposed first. The bytes are the file's in another order:
//   first, for every block of the row, the bytes of all rows that fill no dword (a scale); then, for every block, its
//   dwords in the order in which they are read (`dword_place`), each for all sixteen rows.
// The bytes are prefetched in the order in which they are read, a fixed distance ahead. Those that fill no dword come
// first: many blocks share a cache line of them, and after the dwords they would be needed before the prefetch reaches
// them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/products/weight_blocks.h"

namespace winnow::kernels {

inline constexpr std::int64_t kInterleavedRows = 16;

// The layout of a weight matrix in memory.
enum class WeightLayout { kRows, kInterleaved };

// Returns the place of dword i of a block among its dwords: they are stored in the order in which int8_formats-inl.h
// reads them, so that the processor sees a stream. Dwords that are read four at a time are adjacent.
constexpr std::size_t dword_place(WeightBlocks blocks, std::size_t i) {
  // Scales; for each half the high bits of 16 weights of four blocks, then the low bits of two blocks and of two more.
  constexpr std::size_t kQ6Fours[] = {2, 5, 3, 6, 8, 11, 9, 12, 1, 4, 7, 10, 0};
  switch (blocks) {
    case WeightBlocks::kQ2_K:  // two scales for all follow the integers
      return i < 4 ? i : i == 20 ? 4 : i + 1;
    case WeightBlocks::kQ3_K:  // the scales follow the integers, too
      return i < 23 ? i + 4 : i - 23;
    case WeightBlocks::kQ6_K:
      return 4 * kQ6Fours[i / 4] + i % 4;
    default:
      return i;
  }
}

// The places of the dwords of a panel of sixteen rows, and of the bytes that fill none.
struct InterleavedPanel {
  InterleavedPanel(WeightBlocks blocks, std::int64_t n_in)
      : info(weight_blocks_info(blocks)), n_blocks(n_in / info.n_weights) {}

  std::size_t n_dwords() const { return info.n_bytes / 4; }  // of a block
  std::size_t n_lone() const { return info.n_bytes % 4; }    // bytes of a block
  std::size_t row_bytes() const { return static_cast<std::size_t>(n_blocks) * info.n_bytes; }
  std::size_t bytes() const { return row_bytes() * kInterleavedRows; }
  std::size_t lone(std::int64_t block) const { return static_cast<std::size_t>(block) * n_lone() * kRows; }
  std::size_t dwords(std::int64_t block) const {
    return lone(n_blocks) + static_cast<std::size_t>(block) * n_dwords() * 4 * kRows;
  }

  const WeightBlocksInfo& info;
  std::int64_t n_blocks;  // of a row
  static constexpr std::size_t kRows = kInterleavedRows;
};

// Interleaves sixteen rows, one after the other in memory, into a panel; they must not overlap.
void interleave(const InterleavedPanel& shape, const std::byte* rows, std::byte* panel);
// Writes row `row` (0..15) of a panel in the file's order.
void interleaved_row(const InterleavedPanel& shape, const std::byte* panel, std::size_t row, std::byte* out);

}  // namespace winnow::kernels
