#include "text/special_tokens.h"

#include <algorithm>
#include <cctype>

namespace winnow {
namespace {

bool is_space(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }

// Returns whether an end of `first` is a beginning of `second`, and shorter than either.
bool overlaps(std::string_view first, std::string_view second) {
  for (std::size_t n = 1; n < std::min(first.size(), second.size()); ++n) {
    if (first.substr(first.size() - n) == second.substr(0, n)) return true;
  }
  return false;
}

}  // namespace

std::vector<std::string> certain_specials(const std::vector<std::string>& all,
                                          const std::vector<std::string>& searched) {
  std::vector<std::string> certain;
  for (const std::string& text : searched) {
    if (text.empty() || is_space(text.front())) continue;
    const bool is_disturbed = std::any_of(all.begin(), all.end(), [&](const std::string& other) {
      return overlaps(other, text) || overlaps(text, other) || other.find(text, 1) != std::string::npos;
    });
    if (!is_disturbed) certain.push_back(text);
  }
  return certain;
}

std::vector<std::size_t> cuts_at_specials(std::string_view text, const std::vector<std::string>& certain,
                                          std::size_t piece_bytes) {
  std::vector<std::size_t> next(certain.size(), 0);  // the next occurrence of each
  std::vector<std::size_t> cuts = {0};
  while (cuts.back() + piece_bytes < text.size()) {
    const std::size_t from = cuts.back() + piece_bytes;
    std::size_t cut = std::string_view::npos;
    for (std::size_t i = 0; i < certain.size(); ++i) {
      if (next[i] < from) next[i] = text.find(certain[i], from);
      while (next[i] != std::string_view::npos && is_space(text[next[i] - 1])) {
        next[i] = text.find(certain[i], next[i] + 1);
      }
      cut = std::min(cut, next[i]);
    }
    if (cut == std::string_view::npos) break;
    cuts.push_back(cut);
  }
  return cuts;
}

}  // namespace winnow
