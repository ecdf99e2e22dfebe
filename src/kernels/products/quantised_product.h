// Products of quantised weight matrices with rows of float32 numbers: the rows are quantised, too, to 8 bits by blocks
// of 32 with a float32 scale each (as ggml's q8_1, more exact), and blocks are multiplied as integers. A result takes
// the same steps for any number of rows and any division of the weights: it is the same bits alone and in any batch.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/products/int8_product.h"
#include "kernels/products/weight_blocks.h"

namespace winnow::kernels {

// Whether the current instruction set has products (AVX512-VNNI, AVX-VNNI, AVX2); it then has them for every format.
bool has_quantised_products();

// Rows [first, first + n) of out.
//   rows: [n][n_in], contiguous, n_in a multiple of 32
void quantise_rows(const float* rows, std::int64_t n_in, std::int64_t first, std::int64_t n,
                   const RowChunks<RowBlock>& out);

// y[r][i] = (weight row i) . (row first_row + r) for the task's weight rows; n_in is a multiple of the format's block.
// A result is the same bits for either layout of the weights.
void quantised_product(WeightBlocks blocks, const ProductTask& task);

}  // namespace winnow::kernels
