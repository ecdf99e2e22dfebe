// What NIAH and NeedleBench share: grids of lengths and depths, and needles put among tokens.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "eval/sample.h"
#include "eval/texts.h"

namespace winnow::eval {

// Percent; throws Error(kInvalidArgument) for what is not in 0 to 100.
std::vector<double> depths_of(const SampleOptions& options, std::vector<double> by_default);
std::vector<std::int32_t> lengths_of(const SampleOptions& options, std::vector<std::int32_t> by_default);

// n of `size` indices, evenly spread; all of them if n is 0 or more.
std::vector<std::size_t> spread(std::size_t n, std::size_t size);

// Where in n tokens a depth in percent is.
std::size_t depth_index(std::size_t n, double depth);

}  // namespace winnow::eval
