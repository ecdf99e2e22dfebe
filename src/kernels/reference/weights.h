// Quantised weights as their formats are defined, one at a time, in double precision.
#pragma once

#include <cstddef>
#include <vector>

#include "kernels/products/weight_blocks.h"

namespace winnow::kernels::reference {

// n weights, whole blocks.
std::vector<double> weights(WeightBlocks blocks, const std::byte* src, std::size_t n);

}  // namespace winnow::kernels::reference
