// Products of quantised weight matrices with the few rows of a step of decoding, bound by reading the weights: a weight
// row is read once, in order, for all rows. Rows are quantised to 8 bits by blocks of 32 with a float32 scale each. A
// row's results do not depend on the others: they are the same bits alone and in any batch. quantised_product.h is for
// many rows.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/weight_blocks.h"

namespace winnow::kernels {

// Whether the current instruction set has a product for the format (AVX512-VNNI; q4_0, q4_1 and q8_0).
bool has_few_rows_product(WeightBlocks blocks);

// Bytes of n_rows quantised rows of n_in numbers, n_in a multiple of 32.
std::size_t few_rows_bytes(std::int64_t n_in, std::int64_t n_rows);

// rows: [n_rows][n_in], contiguous -> out, 64-byte aligned
void quantise_few_rows(const float* rows, std::int64_t n_in, std::int64_t n_rows, std::byte* out);

// y[r][i] = (weight row i) . (row r) for weight rows [first, last).
//   weights: row 0, of n_in weights; a row takes weight_stride bytes. y: [n_rows][y_stride]
void few_rows_product(WeightBlocks blocks, const std::byte* weights, std::size_t weight_stride, std::int64_t first,
                      std::int64_t last, const std::byte* rows, std::int64_t n_in, std::int64_t n_rows, float* y,
                      std::int64_t y_stride);

}  // namespace winnow::kernels
