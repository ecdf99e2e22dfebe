// Finds the level of a codebook that is nearest to each of a row's numbers.
#pragma once

#include <cstdint>
#include <span>

namespace winnow::kernels {

// Sets index[i] to the number of the ascending `bounds` below |y[i]|.
void nearest_levels(const float* y, int n, std::span<const float> bounds, std::int32_t* index);

}  // namespace winnow::kernels
