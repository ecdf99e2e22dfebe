// Counts the heads that SessionStatistics::raised names.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace winnow {

// Returns the number of true elements. raised: [n_layer][n_kv_head].
inline std::int64_t count_raised(const std::vector<std::vector<bool>>& raised) {
  std::int64_t n = 0;
  for (const std::vector<bool>& layer : raised) n += std::ranges::count(layer, true);
  return n;
}

}  // namespace winnow
