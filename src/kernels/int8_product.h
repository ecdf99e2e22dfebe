// What the products of quantised weights are made of for each instruction set: the rows as they are quantised, and the
// functions that a file for one instruction set defines (int8_product_*.cc). quantised_product.cc chooses among them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/weight_blocks.h"

namespace winnow::kernels {

inline constexpr std::int64_t kRowBlock = 32;  // numbers

// 32 numbers of a row: number i is scale * q[i].
struct alignas(64) RowBlock {
  std::int8_t q[kRowBlock];  // -127..127
  float scale;
  float sum;                  // of the numbers as quantised
  float sum_low, sum_high;    // of the first 16 and the last
  std::int32_t negative_sum;  // minus the sum of q
  std::int32_t negative_low, negative_high;
  std::int32_t padding;
};
static_assert(sizeof(RowBlock) == 64);

// y[r][i] = (weight row i) . (row r) for weight rows [first, last).
struct ProductTask {
  const std::byte* weights;   // row 0
  std::size_t weight_stride;  // bytes
  std::int64_t n_out;         // weight rows of the matrix
  std::int64_t first, last;
  const RowBlock* rows;  // [n_rows][n_in / 32]
  std::int64_t n_in, n_rows;
  float* y;  // [n_rows][y_stride]
  std::int64_t y_stride;
};

struct Int8Products {
  void (*quantise)(const float* rows, std::int64_t n_in, std::int64_t n_rows, RowBlock* out);
  void (*multiply)(WeightBlocks blocks, const ProductTask& task);
};

// Each may be called on a processor that has the instructions.
extern const Int8Products kAvx512VnniProducts;
extern const Int8Products kAvxVnniProducts;
extern const Int8Products kAvx2Products;

}  // namespace winnow::kernels
