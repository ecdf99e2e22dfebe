// The parts that NIAH and NeedleBench share: grids of lengths and depths, and needles hidden among tokens.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "eval/sample.h"
#include "eval/texts.h"

namespace winnow::eval {

// Returns the depths of the options in percent, or the default ones; throws Error(kInvalidArgument) for a depth outside
// of 0 to 100.
std::vector<double> depths_of(const SampleOptions& options, std::vector<double> by_default);
// Returns the lengths of the options in tokens, or the default ones; throws Error(kInvalidArgument) for a length below
// 1.
std::vector<std::int32_t> lengths_of(const SampleOptions& options, std::vector<std::int32_t> by_default);

// Returns n of `size` indices, evenly spread; all of them if n is 0 or exceeds `size`.
std::vector<std::size_t> spread(std::size_t n, std::size_t size);

// Returns the position in n tokens of a depth in percent.
std::size_t depth_index(std::size_t n, double depth);

}  // namespace winnow::eval
