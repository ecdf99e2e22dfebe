// Which level of a codebook is nearest to each of a row's numbers.
#pragma once

#include <cstdint>
#include <span>

namespace winnow::kernels {

// index[i] = how many of the ascending `bounds` are below |y[i]|.
void nearest_levels(const float* y, int n, std::span<const float> bounds, std::int32_t* index);

}  // namespace winnow::kernels
