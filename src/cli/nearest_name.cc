#include "cli/nearest_name.h"

#include <algorithm>

#include "eviction/nearest_name.h"

namespace winnow::cli {

std::string nearest_name(std::string_view wrong, std::span<const std::string> names) {
  std::string best;
  // A third of the letters may be wrong; more than that is another word.
  int best_distance = std::max(1, static_cast<int>(wrong.size()) / 3) + 1;
  for (const std::string& name : names) {
    // An abbreviation, or a name with an ending that it does not have.
    const bool prefix =
        std::min(name.size(), wrong.size()) >= 4 && (name.starts_with(wrong) || wrong.starts_with(name));
    if (prefix) return name;
    const int distance = edit_distance(wrong, name);
    if (distance < best_distance) {
      best_distance = distance;
      best = name;
    }
  }
  return best;
}

}  // namespace winnow::cli
