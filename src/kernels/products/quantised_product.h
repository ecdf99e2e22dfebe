// Products of quantised weight matrices with rows of float32 numbers. The rows are quantised, too, to 8 bits in blocks
// of 32 with a float32 scale each (as ggml's q8_1, but more exact), and blocks are multiplied as integers. A result
// takes the same steps for any number of rows and any division of the weights, so its bits are the same alone and in
// any batch.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/products/int8_product.h"
#include "kernels/products/weight_blocks.h"

namespace winnow::kernels {

// Returns whether the current instruction set has these products (AVX512-VNNI, AVX-VNNI, AVX2, NEON with dot products).
// It has them for every format or for none.
bool has_quantised_products();

// Quantises rows into rows [first, first + n) of out.
//   rows: [n][n_in], contiguous, n_in a multiple of 32
void quantise_rows(const float* rows, std::int64_t n_in, std::int64_t first, std::int64_t n,
                   const RowChunks<RowBlock>& out);

// Computes y[r][i] = (weight row i) . (row first_row + r) for the task's weight rows; n_in is a multiple of the
// format's block. The bits are the same for either layout of the weights.
void quantised_product(WeightBlocks blocks, const ProductTask& task);

}  // namespace winnow::kernels
