#include "kernels/products/quantised_product.h"

#include <hwy/base.h>

#include <cassert>

#include "kernels/simd/isa.h"

namespace winnow::kernels {
namespace {

// Returns the products of the current instruction set; null if it has none.
const Int8Products* current_products() {
  switch (current_int8_unit()) {
#if HWY_ARCH_X86_64
    case Int8Unit::kAvx512Vnni:
      return &kAvx512VnniProducts;
    case Int8Unit::kAvxVnni:
      return &kAvxVnniProducts;
    case Int8Unit::kAvx2:
      return &kAvx2Products;
#elif HWY_ARCH_ARM_A64
    case Int8Unit::kNeonI8mm:
      return &kNeonI8mmProducts;
    case Int8Unit::kNeonDot:
      return &kNeonDotProducts;
#endif
    default:
      return nullptr;
  }
}

}  // namespace

bool has_quantised_products() { return current_products() != nullptr; }

void quantise_rows(const float* rows, std::int64_t n_in, std::int64_t first, std::int64_t n,
                   const RowChunks<RowBlock>& out) {
  assert(n_in % kRowBlock == 0 && first + n <= out.n_rows);
  current_products()->quantise(rows, n_in, first, n, out);
}

void quantised_product(WeightBlocks blocks, const ProductTask& task) {
  assert(task.n_in % weight_blocks_info(blocks).n_weights == 0 && task.first_row + task.n_rows <= task.rows.n_rows);
  assert(
      task.layout == WeightLayout::kRows ||
      (task.n_out % kInterleavedRows == 0 && task.first % kInterleavedRows == 0 && task.last % kInterleavedRows == 0));
  current_products()->multiply(blocks, task);
}

}  // namespace winnow::kernels
