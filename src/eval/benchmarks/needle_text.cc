#include "eval/benchmarks/needle_text.h"

#include <algorithm>
#include <cmath>

#include "base/numbers.h"
#include "winnow/error.h"

namespace winnow::eval {

std::vector<double> depths_of(const SampleOptions& options, std::vector<double> by_default) {
  for (const double depth : options.depths) {
    if (!(depth >= 0 && depth <= 100)) {
      throw Error(ErrorCode::kInvalidArgument,
                  "a depth is " + format_number(depth) + ": give a percentage from 0 to 100");
    }
  }
  return options.depths.empty() ? std::move(by_default) : options.depths;
}

std::vector<std::int32_t> lengths_of(const SampleOptions& options, std::vector<std::int32_t> by_default) {
  for (const std::int32_t length : options.lengths) {
    if (length < 1) {
      throw Error(ErrorCode::kInvalidArgument, "a length is " + std::to_string(length) + " tokens: give 1 or more");
    }
  }
  return options.lengths.empty() ? std::move(by_default) : options.lengths;
}

std::vector<std::size_t> spread(std::size_t n, std::size_t size) {
  if (n == 0 || n > size) n = size;
  std::vector<std::size_t> indices;
  for (std::size_t i = 0; i < n; ++i) indices.push_back(n == 1 ? size / 2 : i * (size - 1) / (n - 1));
  return indices;
}

std::size_t depth_index(std::size_t n, double depth) {
  return static_cast<std::size_t>(std::floor(static_cast<double>(n) * depth / 100));
}

}  // namespace winnow::eval
