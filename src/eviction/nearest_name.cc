#include "eviction/nearest_name.h"

#include <algorithm>
#include <vector>

namespace winnow {

int edit_distance(std::string_view a, std::string_view b) {
  const std::size_t width = b.size() + 1;
  std::vector<int> cost((a.size() + 1) * width);
  for (std::size_t i = 0; i <= a.size(); ++i) {
    for (std::size_t j = 0; j <= b.size(); ++j) {
      int& here = cost[i * width + j];
      if (i == 0 || j == 0) {
        here = static_cast<int>(i + j);
        continue;
      }
      const int substitute = cost[(i - 1) * width + j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      here = std::min({cost[(i - 1) * width + j] + 1, cost[i * width + j - 1] + 1, substitute});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        here = std::min(here, cost[(i - 2) * width + j - 2] + 1);
      }
    }
  }
  return cost.back();
}

std::string_view nearest_name(std::string_view name, std::span<const std::string_view> names) {
  const std::string_view shortened = name.substr(0, 64);  // the cost grows with the length
  return *std::min_element(names.begin(), names.end(), [&](std::string_view a, std::string_view b) {
    return edit_distance(shortened, a) < edit_distance(shortened, b);
  });
}

}  // namespace winnow
