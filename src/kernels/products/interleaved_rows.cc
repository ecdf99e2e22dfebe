#include "kernels/products/interleaved_rows.h"

#include <array>
#include <cassert>
#include <cstring>

namespace winnow::kernels {
namespace {

// Calls copy(offset in the panel, offset in the row, bytes) for every piece of row `row`.
template <class Copy>
void for_each_piece(const InterleavedPanel& shape, std::size_t row, const Copy& copy) {
  const std::size_t n_dwords = shape.n_dwords(), n_lone = shape.n_lone(), n_head = shape.info.n_head;
  std::array<std::size_t, 64> places{};  // byte offsets of a block's dwords
  assert(n_dwords <= places.size());
  for (std::size_t i = 0; i < n_dwords; ++i) {
    places[i] = dword_place(shape.info.blocks, i) * 4 * InterleavedPanel::kRows;
  }
  for (std::int64_t b = 0; b < shape.n_blocks; ++b) {
    const std::size_t block = static_cast<std::size_t>(b) * shape.info.n_bytes;
    const std::size_t panel = shape.dwords(b) + 4 * row;
    for (std::size_t i = 0; i < n_dwords; ++i) {
      copy(panel + places[i], block + n_head + 4 * i, std::size_t{4});
    }
    if (n_lone > 0) copy(shape.lone(b) + row * n_lone, block + (n_head > 0 ? 0 : 4 * n_dwords), n_lone);
  }
}

}  // namespace

void interleave(const InterleavedPanel& shape, const std::byte* rows, std::byte* panel) {
  for (std::size_t r = 0; r < InterleavedPanel::kRows; ++r) {
    const std::byte* row = rows + r * shape.row_bytes();
    for_each_piece(shape, r, [&](std::size_t to, std::size_t from, std::size_t n) {
      n == 4 ? std::memcpy(panel + to, row + from, 4) : std::memcpy(panel + to, row + from, n);
    });
  }
}

void interleaved_row(const InterleavedPanel& shape, const std::byte* panel, std::size_t row, std::byte* out) {
  for_each_piece(shape, row, [&](std::size_t from, std::size_t to, std::size_t n) {
    n == 4 ? std::memcpy(out + to, panel + from, 4) : std::memcpy(out + to, panel + from, n);
  });
}

}  // namespace winnow::kernels
