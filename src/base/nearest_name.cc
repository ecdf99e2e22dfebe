#include "base/nearest_name.h"

#include <algorithm>

namespace winnow {
namespace {

std::string lower_case(std::string_view name) {
  std::string lower(name);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return lower;
}

}  // namespace

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

std::string_view nearest_name(std::string_view whole_wrong, const std::vector<std::string_view>& names) {
  const std::string wrong = lower_case(whole_wrong.substr(0, 64));  // the cost grows with the length
  std::string_view best;
  // A third of the letters may be wrong; a name with more edits is another word.
  int best_distance = std::max(1, static_cast<int>(wrong.size()) / 3) + 1;
  for (const std::string_view name : names) {
    // `wrong` is an abbreviation, or a name with an ending that it does not have.
    const bool is_prefix =
        std::min(name.size(), wrong.size()) >= 4 && (name.starts_with(wrong) || wrong.starts_with(name));
    if (is_prefix) return name;
    const auto [shorter, longer] = std::minmax({wrong.size(), name.size()});
    if (longer - shorter >= static_cast<std::size_t>(best_distance)) continue;  // it takes at least as many edits
    const int distance = edit_distance(wrong, lower_case(name));
    if (distance < best_distance) {
      best_distance = distance;
      best = name;
    }
  }
  return best;
}

std::string name_question(std::string_view wrong, const std::vector<std::string_view>& names) {
  const std::string_view nearest = nearest_name(wrong, names);
  return nearest.empty() ? ";" : "; did you mean " + std::string(nearest) + "?";
}

std::string name_advice(std::string_view wrong, const std::vector<std::string_view>& names) {
  if (const std::string_view nearest = nearest_name(wrong, names); !nearest.empty()) {
    return "did you mean '" + std::string(nearest) + "'?";
  }
  std::string text = "choose ";
  for (std::size_t i = 0; i < names.size(); ++i) {
    text += i == 0 ? "'" : i + 1 == names.size() ? " or '" : ", '";
    text += std::string(names[i]) + "'";
  }
  return text;
}

}  // namespace winnow
