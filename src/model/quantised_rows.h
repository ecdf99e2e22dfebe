// The memory of rows in nodes of 8-bit products, and the outputs that each thread computes.
#pragma once

#include <ggml.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/products/quantised_product.h"

namespace winnow {

// Returns the aligned address at which a node's rows begin. The node has room for one kernels::RowBlock more, since
// ggml aligns tensors to less than a block needs.
inline std::byte* aligned_rows(const ggml_tensor* node) {
  constexpr std::uintptr_t kAlignment = alignof(kernels::RowBlock);
  const auto address = reinterpret_cast<std::uintptr_t>(node->data);
  return reinterpret_cast<std::byte*>((address + kAlignment - 1) / kAlignment * kAlignment);
}

// The outputs [first, last) of a product that thread ith of nth computes with kernels::quantised_product.
struct OutputPart {
  OutputPart(std::int64_t n_out, int ith, int nth) {
    constexpr std::int64_t kGrain = 32;  // weight rows that a kernel takes at once on the widest vectors
    const std::int64_t n_grains = (n_out + kGrain - 1) / kGrain;
    first = n_grains * ith / nth * kGrain;
    last = std::min(n_out, n_grains * (ith + 1) / nth * kGrain);
  }
  std::int64_t first, last;
};

}  // namespace winnow
