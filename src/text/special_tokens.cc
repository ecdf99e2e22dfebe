#include "text/special_tokens.h"

#include <algorithm>
#include <cctype>
#include <utility>

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

// Appends the fragments of a text without special tokens but this one.
void split_at(const SpecialText& special, std::string_view text, std::vector<TextFragment>& fragments) {
  for (std::size_t at = text.find(special.text); at != std::string_view::npos; at = text.find(special.text)) {
    std::string_view before = text.substr(0, at);
    while (special.strips_before && !before.empty() && is_space(before.back())) before.remove_suffix(1);
    if (!before.empty()) fragments.push_back({before, std::nullopt});
    fragments.push_back({text.substr(at, special.text.size()), special.token});
    text.remove_prefix(at + special.text.size());
    while (special.strips_after && !text.empty() && is_space(text.front())) text.remove_prefix(1);
  }
  if (!text.empty()) fragments.push_back({text, std::nullopt});
}

}  // namespace

std::vector<TextFragment> fragments_of(std::string_view text, std::span<const SpecialText> specials,
                                       bool parse_special) {
  std::vector<TextFragment> fragments = {{text, std::nullopt}};
  for (const SpecialText& special : specials) {
    const bool is_sought = !special.text.empty() && (parse_special || !special.is_parsed_only);
    if (!is_sought || text.find(special.text) == std::string_view::npos) continue;
    for (const TextFragment& fragment : std::exchange(fragments, {})) {
      if (fragment.token) {
        fragments.push_back(fragment);
      } else {
        split_at(special, fragment.text, fragments);
      }
    }
  }
  return fragments;
}

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
