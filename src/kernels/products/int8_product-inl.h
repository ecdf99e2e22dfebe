// Products of panels (int8_panels-inl.h) with rows quantised to 8 bits. A panel of weights is unpacked once for
// kMostRows rows, one chunk of columns after the other, so that it is in the nearest cache while the rows are
// multiplied with it. Included by the file of each instruction set after Vectors is defined.
#pragma once

#include "kernels/products/int8_formats-inl.h"
#include "kernels/products/int8_panels-inl.h"
#include "kernels/products/int8_streamed-inl.h"
#include "kernels/products/int8_tiles-inl.h"

namespace winnow::kernels {
namespace {

inline constexpr int kPanels = 2;               // panels that are multiplied at once
inline constexpr std::int64_t kMostRows = 512;  // rows for which a panel is unpacked: sums and chunks stay in the cache

// The functions of which products with weights of one format and layout are made.
struct PanelProducts {
  WeightBlocks blocks;
  // Unpacks n blocks of weight rows [begin, begin + kLanes), from block `block` on.
  void (*unpack)(const ProductTask& task, std::int64_t begin, std::int64_t block, std::int64_t n, ReadAhead& ahead,
                 Panel& panel);
  int most_rows;  // of a tile
  // [panels - 1][rows - 1]: multiply_tile, or multiply_tile_of_integer_scales
  void (*tiles[kPanels][Vectors::kTileRows])(const Panel* panels, std::int64_t n_blocks, const RowBlock* rows,
                                             float* sums);
};

template <class Format, class Rows>
void unpack_panel(const ProductTask& task, std::int64_t begin, std::int64_t block, std::int64_t n, ReadAhead& ahead,
                  Panel& panel) {
  ReadAhead own = ahead;  // in registers
  Rows rows(task, begin, block * kRowBlock / weight_blocks_info(Format::kBlocks).n_weights, own);
  Format::unpack(rows, n, panel);
  ahead = own;
}

template <class Format, int kColumns, int kRows>
constexpr void add_tiles(PanelProducts& to) {
  if constexpr (kScalesWords<Format>) {
    to.tiles[kColumns - 1][kRows - 1] = multiply_tile_of_integer_scales<Format, kRows, kColumns>;
  } else {
    to.tiles[kColumns - 1][kRows - 1] = multiply_tile<Format, kRows, kColumns>;
  }
  if constexpr (kRows > 1) add_tiles<Format, kColumns, kRows - 1>(to);
}

template <class Format, class Rows>
constexpr PanelProducts panel_products() {
  constexpr int kMost = Format::kHalves ? Vectors::kHalvesTileRows : Vectors::kTileRows;
  PanelProducts products{
      .blocks = Format::kBlocks, .unpack = unpack_panel<Format, Rows>, .most_rows = kMost, .tiles = {}};
  add_tiles<Format, 1, kMost>(products);
  add_tiles<Format, kPanels, kMost>(products);
  return products;
}

template <class Format, class Rows>
inline constexpr PanelProducts kPanelProducts = panel_products<Format, Rows>();

// Multiplies n_panels panels, the first from weight row `begin` on, with rows [first_row, first_row + n_rows), at most
// kMostRows.
//   y: [n_rows][y_stride]
void multiply_panels(const PanelProducts& products, int n_panels, const ProductTask& task, std::int64_t begin,
                     std::int64_t first_row, std::int64_t n_rows, float* y, std::int64_t y_stride) {
  const WeightBlocksInfo& info = weight_blocks_info(products.blocks);
  const std::int64_t stride = n_panels * kLanes;
  Panel panels[kPanels];
  alignas(64) float sums[kMostRows * kPanels * kLanes];  // contiguous: rows of y may share a few sets of the cache
  std::fill_n(sums, n_rows * stride, 0.0F);
  const std::int64_t n_blocks = task.n_in / kRowBlock;
  const std::byte* first = task.weights + static_cast<std::size_t>(begin) * task.weight_stride;
  const std::size_t panel_bytes = static_cast<std::size_t>(kLanes) * task.weight_stride;
  const bool is_last = begin + stride >= task.last && task.next != nullptr;
  const std::byte* next = is_last ? task.next : first + static_cast<std::size_t>(n_panels) * panel_bytes;
  const std::int64_t n_tiles = (n_rows + products.most_rows - 1) / products.most_rows;
  const bool to_first_level = fetches_to_first_level();
  for (std::int64_t block = 0; block < n_blocks; block += kPanelBlocks) {
    const std::int64_t n = std::min(kPanelBlocks, n_blocks - block);
    const std::size_t bytes_before = static_cast<std::size_t>(block * kRowBlock / info.n_weights) * info.n_bytes;
    const std::size_t bytes = static_cast<std::size_t>(n * kRowBlock / info.n_weights) * info.n_bytes;
    // The same number of bytes of the next panels is prefetched as is read here. Prefetches beyond the last weights do
    // no harm.
    const std::byte* from = next + static_cast<std::size_t>(stride) * bytes_before;
    ReadAhead ahead{from, from + static_cast<std::size_t>(stride) * bytes, to_first_level};
    for (int p = 0; p < n_panels; ++p) products.unpack(task, begin + p * kLanes, block, n, ahead, panels[p]);
    for (std::int64_t tile = 0; tile < n_tiles; ++tile) {
      const std::int64_t r = n_rows * tile / n_tiles;  // tiles of nearly equal numbers of rows
      const std::int64_t n_tile = n_rows * (tile + 1) / n_tiles - r;
      products.tiles[n_panels - 1][n_tile - 1](panels, n, task.rows.at(first_row + r, block, n), sums + r * stride);
    }
  }
  for (std::int64_t r = 0; r < n_rows; ++r) std::copy_n(sums + r * stride, stride, y + r * y_stride);
}

// Multiplies the task's weight rows with rows [first_row, first_row + n_rows).
//   y: the result of the first of these rows
void multiply_some(const PanelProducts& products, const ProductTask& task, std::int64_t first_row, std::int64_t n_rows,
                   float* y) {
  std::int64_t i = task.first;
  for (; i + kPanels * kLanes <= task.last; i += kPanels * kLanes) {
    multiply_panels(products, kPanels, task, i, first_row, n_rows, y + i, task.y_stride);
  }
  for (; i + kLanes <= task.last; i += kLanes) {
    multiply_panels(products, 1, task, i, first_row, n_rows, y + i, task.y_stride);
  }
  if (i == task.last) return;
  // The remaining weight rows share a panel with rows before or after them, or with copies.
  ProductTask rest = task;
  std::vector<std::byte> copies;
  std::int64_t begin = std::min(i, task.n_out - kLanes);
  if (begin < 0) {
    copies.resize(static_cast<std::size_t>(kLanes) * task.weight_stride);
    const auto n_copied = std::min(copies.size(), static_cast<std::size_t>(task.n_out) * task.weight_stride);
    std::copy_n(task.weights, n_copied, copies.begin());
    rest.weights = copies.data();
    begin = 0;
  }
  std::vector<float> sums(static_cast<std::size_t>(n_rows * kLanes));
  multiply_panels(products, 1, rest, begin, first_row, n_rows, sums.data(), kLanes);
  for (std::int64_t r = 0; r < n_rows; ++r) {
    std::copy(sums.begin() + r * kLanes + (i - begin), sums.begin() + r * kLanes + (task.last - begin),
              y + r * task.y_stride + i);
  }
}

void multiply_many(const PanelProducts& products, const ProductTask& task) {
  for (std::int64_t r = 0; r < task.n_rows; r += kMostRows) {
    multiply_some(products, task, task.first_row + r, std::min(kMostRows, task.n_rows - r), task.y + r * task.y_stride);
  }
}

template <class Format>
void multiply_format(const ProductTask& task) {
  if (task.layout == WeightLayout::kRows) return multiply_many(kPanelProducts<Format, FileRows<Format::kBlocks>>, task);
  if (task.n_rows <= Vectors::kStreamedRows) return multiply_few<Format>(task);
  multiply_many(kPanelProducts<Format, InterleavedRows<Format::kBlocks>>, task);
}

void multiply(WeightBlocks blocks, const ProductTask& task) {
  switch (blocks) {
    case WeightBlocks::kQ4_0:
      return multiply_format<Q4_0>(task);
    case WeightBlocks::kQ4_1:
      return multiply_format<Q4_1>(task);
    case WeightBlocks::kQ5_0:
      return multiply_format<Q5_0>(task);
    case WeightBlocks::kQ5_1:
      return multiply_format<Q5_1>(task);
    case WeightBlocks::kQ8_0:
      return multiply_format<Q8_0>(task);
    case WeightBlocks::kQ2_K:
      return multiply_format<Q2_K>(task);
    case WeightBlocks::kQ3_K:
      return multiply_format<Q3_K>(task);
    case WeightBlocks::kQ4_K:
      return multiply_format<Q4_K>(task);
    case WeightBlocks::kQ5_K:
      return multiply_format<Q5_K>(task);
    case WeightBlocks::kQ6_K:
      return multiply_format<Q6_K>(task);
    case WeightBlocks::kIQ4_NL:
      return multiply_format<IQ4_NL>(task);
    case WeightBlocks::kIQ4_XS:
      return multiply_format<IQ4_XS>(task);
    case WeightBlocks::kMXFP4:
      return multiply_format<MXFP4>(task);
  }
}

void quantise_block(const float* numbers, RowBlock& out) {
  const float most = std::max(Vectors::max_16(numbers), Vectors::max_16(numbers + 16));
  const float inverse = most > 0.0F ? 127.0F / most : 0.0F;
  const std::int32_t low = Vectors::quantise_16(numbers, inverse, out.q);
  const std::int32_t high = Vectors::quantise_16(numbers + 16, inverse, out.q + 16);
  out.scale = most / 127.0F;
  out.sum = out.scale * static_cast<float>(low + high);
  out.sum_low = out.scale * static_cast<float>(low);
  out.sum_high = out.scale * static_cast<float>(high);
  out.negative_sum = -low - high;
  out.negative_low = -low;
  out.negative_high = -high;
  out.negative_halves = (static_cast<std::uint32_t>(-low) & 0xFFFFU) | static_cast<std::uint32_t>(-high) << 16U;
}

void quantise(const float* rows, std::int64_t n_in, std::int64_t first, std::int64_t n,
              const RowChunks<RowBlock>& out) {
  const std::int64_t n_blocks = n_in / kRowBlock;
  for (std::int64_t row = first; row < first + n; ++row) {
    for (std::int64_t block = 0; block < n_blocks; block += kChunkBlocks) {
      const std::int64_t n_chunk = std::min(kChunkBlocks, n_blocks - block);
      RowBlock* to = out.at(row, block, n_chunk);
      for (std::int64_t b = 0; b < n_chunk; ++b, rows += kRowBlock) quantise_block(rows, to[b]);
    }
  }
}

}  // namespace
}  // namespace winnow::kernels
