#include "kernels/few_rows_product.h"

#include <hwy/base.h>

#include <cassert>

#include "kernels/few_rows_kernels.h"
#include "kernels/isa.h"

namespace winnow::kernels {
namespace {

// Of the current instruction set; null: none.
const FewRowsKernels* current_kernels() {
#if HWY_ARCH_X86_64
  switch (current_int8_unit()) {
    case Int8Unit::kAvx512Vnni:
      return &kAvx512VnniFewRows;
    case Int8Unit::kAvxVnni:
      return &kAvxVnniFewRows;
    case Int8Unit::kAvx2:
      return &kAvx2FewRows;
    case Int8Unit::kNone:
      break;
  }
#endif
  return nullptr;
}

}  // namespace

bool has_few_rows_product(WeightBlocks blocks) {
  const FewRowsKernels* kernels = current_kernels();
  return kernels != nullptr && kernels->has(blocks);
}

std::size_t few_rows_bytes(std::int64_t n_in, std::int64_t n_rows) {
  return FewRowsLayout(n_in).bytes() * static_cast<std::size_t>(n_rows);
}

void quantise_few_rows(const float* rows, std::int64_t n_in, std::int64_t n_rows, std::byte* out) {
  assert(n_in % kFewRowsBlock == 0);
  current_kernels()->quantise(rows, n_in, n_rows, out);
}

void few_rows_product(WeightBlocks blocks, const FewRowsTask& task) {
  assert(task.n_in % weight_blocks_info(blocks).n_weights == 0);
  current_kernels()->multiply(blocks, task);
}

}  // namespace winnow::kernels
