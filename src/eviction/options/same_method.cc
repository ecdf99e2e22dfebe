#include "eviction/options/same_method.h"

#include <algorithm>
#include <string>
#include <vector>

namespace winnow {

bool is_same_method(const EvictionOptions& a, const EvictionOptions& b) {
  const std::vector<std::string> names = a.used_options();
  return names == b.used_options() && a.importance == b.importance && a.utility_profile == b.utility_profile &&
         std::all_of(names.begin(), names.end(), [&](const std::string& name) { return a.get(name) == b.get(name); });
}

}  // namespace winnow
