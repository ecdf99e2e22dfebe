// Products of quantised weight matrices with the few rows of a step of decoding, bound by reading the weights: a weight
// row is read once, in order, for all rows. Rows are quantised to 8 bits by blocks of 32 with a float32 scale each. A
// row's results do not depend on the others: they are the same bits alone and in any batch. quantised_product.h is for
// many rows.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/weight_blocks.h"

namespace winnow::kernels {

// Whether the current instruction set has products: AVX512-VNNI for every format; AVX2, with and without VNNI, for all
// but q5_1 and q2_K.
bool has_few_rows_product(WeightBlocks blocks);

// Bytes of n_rows quantised rows of n_in numbers, n_in a multiple of 32.
std::size_t few_rows_bytes(std::int64_t n_in, std::int64_t n_rows);

// rows: [n_rows][n_in], contiguous -> out, 64-byte aligned
void quantise_few_rows(const float* rows, std::int64_t n_in, std::int64_t n_rows, std::byte* out);

// y[r][i] = (weight row i) . (row r) for weight rows [first, last).
struct FewRowsTask {
  const std::byte* weights;   // row 0
  std::size_t weight_stride;  // bytes
  std::int64_t first, last;
  const std::byte* rows;  // quantised, n_rows
  std::int64_t n_in, n_rows;
  float* y;  // [n_rows][y_stride]
  std::int64_t y_stride;
};

// n_in is a multiple of the format's block, for which there is a product.
void few_rows_product(WeightBlocks blocks, const FewRowsTask& task);

}  // namespace winnow::kernels
