// The quantised rows, and the functions that the file of each instruction set defines (int8_product_*.cc), for products
// of quantised weights. quantised_product.cc chooses among them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/products/interleaved_rows.h"

namespace winnow::kernels {

inline constexpr std::int64_t kRowBlock = 32;    // numbers
inline constexpr std::int64_t kChunkBlocks = 8;  // blocks of a row that are contiguous

// A block of 32 numbers of a row: number i is scale * q[i].
struct alignas(64) RowBlock {
  std::int8_t q[kRowBlock];  // -127..127
  float scale;
  float sum;                  // sum of the quantised numbers
  float sum_low, sum_high;    // sums of the first 16 numbers and of the last 16
  std::int32_t negative_sum;  // minus the sum of q
  std::int32_t negative_low, negative_high;
  std::uint32_t negative_halves;  // these two in 16 bits each, the low one first
};
static_assert(sizeof(RowBlock) == 64);

// Quantised rows, [n_in / 256][n_rows][8 blocks]; the last chunk of 256 numbers may be shorter. Products go through one
// chunk of all rows after the other, so they read contiguous memory: whole rows whose size is a power of two would
// share a few sets of the caches.
template <class Block>
struct RowChunks {
  Block* blocks;
  std::int64_t n_rows;
  // Returns the first of n blocks of a row's chunk.
  Block* at(std::int64_t row, std::int64_t first_block, std::int64_t n) const {
    return blocks + first_block * n_rows + row * n;
  }
};

// The task of one thread: y[r][i] = (weight row i) . (row first_row + r) for weight rows [first, last).
struct ProductTask {
  const std::byte* weights;   // row 0
  const std::byte* next;      // the weight row that the thread reads next, to be prefetched; null: unknown
  std::size_t weight_stride;  // bytes
  std::int64_t n_out;         // weight rows of the matrix
  std::int64_t first, last;
  RowChunks<const RowBlock> rows;
  std::int64_t first_row, n_rows;
  std::int64_t n_in;
  float* y;  // [n_rows][y_stride]
  std::int64_t y_stride;
  WeightLayout layout = WeightLayout::kRows;  // interleaved: n_out, first and last are multiples of kInterleavedRows
};

// The functions of one instruction set.
struct Int8Products {
  void (*quantise)(const float* rows, std::int64_t n_in, std::int64_t first, std::int64_t n,
                   const RowChunks<RowBlock>& out);
  void (*multiply)(WeightBlocks blocks, const ProductTask& task);
};

// These may be called only on a processor that has the instructions.
extern const Int8Products kAvx512VnniProducts;
extern const Int8Products kAvxVnniProducts;
extern const Int8Products kAvx2Products;
extern const Int8Products kNeonI8mmProducts;
extern const Int8Products kNeonDotProducts;

}  // namespace winnow::kernels
