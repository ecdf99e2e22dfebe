// Sixteen rows of a quantised weight matrix side by side: a vector then takes the same place of every row with one
// load, where rows one behind the other are put in order first. The bytes are those of the file, as many, in another
// order:
//   of every block of the row the bytes of all rows that fill no dword (a scale); then of every block its dwords, of
//   each dword that of all sixteen rows, in the order in which they are read (`dword_place`).
// What is read in turn is fetched in turn, a fixed distance ahead: the bytes that many blocks share a line of come
// before the dwords, since behind them they would be needed before that distance reaches them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/products/weight_blocks.h"

namespace winnow::kernels {

inline constexpr std::int64_t kInterleavedRows = 16;

enum class WeightLayout { kRows, kInterleaved };

// Where dword i of a block lies among its dwords: in the order in which int8_formats-inl.h reads them, so that the
// processor sees a stream. Those that are read by fours lie one behind the other.
constexpr std::size_t dword_place(WeightBlocks blocks, std::size_t i) {
  // Scales; of every half the high bits of 16 weights of four blocks, then the low ones of two and of two.
  constexpr std::size_t kQ6Fours[] = {2, 5, 3, 6, 8, 11, 9, 12, 1, 4, 7, 10, 0};
  switch (blocks) {
    case WeightBlocks::kQ2_K:  // two scales for all stand behind the integers
      return i < 4 ? i : i == 20 ? 4 : i + 1;
    case WeightBlocks::kQ3_K:  // the scales, too
      return i < 23 ? i + 4 : i - 23;
    case WeightBlocks::kQ6_K:
      return 4 * kQ6Fours[i / 4] + i % 4;
    default:
      return i;
  }
}

// Where the dwords of a panel of sixteen rows are, and the bytes that fill none.
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

// rows: sixteen, one behind the other -> panel; they do not overlap
void interleave(const InterleavedPanel& shape, const std::byte* rows, std::byte* panel);
// Row `row` (0..15) of a panel as the file has it.
void interleaved_row(const InterleavedPanel& shape, const std::byte* panel, std::size_t row, std::byte* out);

}  // namespace winnow::kernels
