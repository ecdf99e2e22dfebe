// Quantised weights computed from the definition of their formats, one at a time, in double precision.
#pragma once

#include <cstddef>
#include <vector>

#include "kernels/products/weight_blocks.h"

namespace winnow::kernels::reference {

// Returns n weights, whole blocks of them.
std::vector<double> weights(WeightBlocks blocks, const std::byte* src, std::size_t n);

}  // namespace winnow::kernels::reference
