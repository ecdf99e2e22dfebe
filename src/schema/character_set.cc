#include "schema/character_set.h"

#include <algorithm>
#include <cstdio>
#include <utility>

namespace winnow {
namespace {

struct NamedSet {
  const char* name;
  std::vector<std::uint32_t> bounds;
};

const std::vector<NamedSet>& named_sets() {
  static const std::vector<NamedSet> all = {
#include "schema/unicode_sets.inc"
  };
  return all;
}

// Long names of categories in \p{..}, with the short ones.
constexpr std::pair<std::string_view, std::string_view> kLongNames[] = {{"Letter", "L"},
                                                                        {"Uppercase_Letter", "Lu"},
                                                                        {"Uppercase", "Lu"},
                                                                        {"Lowercase_Letter", "Ll"},
                                                                        {"Lowercase", "Ll"},
                                                                        {"Titlecase_Letter", "Lt"},
                                                                        {"Modifier_Letter", "Lm"},
                                                                        {"Other_Letter", "Lo"},
                                                                        {"Mark", "M"},
                                                                        {"Number", "N"},
                                                                        {"Decimal_Number", "Nd"},
                                                                        {"digit", "Nd"},
                                                                        {"Punctuation", "P"},
                                                                        {"punct", "P"},
                                                                        {"Dash_Punctuation", "Pd"},
                                                                        {"Symbol", "S"},
                                                                        {"Math_Symbol", "Sm"},
                                                                        {"Currency_Symbol", "Sc"},
                                                                        {"Separator", "Z"},
                                                                        {"Space_Separator", "Zs"},
                                                                        {"Control", "Cc"},
                                                                        {"Format", "Cf"},
                                                                        {"Alphabetic", "L"},
                                                                        {"Alpha", "L"}};

CharacterSet sorted_set(std::vector<CharacterSet::Range> ranges) { return CharacterSet(std::move(ranges)); }

std::string code_point(std::uint32_t value) {
  char text[16];
  if (value < 0x80 && std::string_view("^-]\\[").find(static_cast<char>(value)) == std::string_view::npos &&
      value > 0x20 && value != 0x7F) {
    return std::string(1, static_cast<char>(value));
  }
  std::snprintf(text, sizeof text, value < 0x100 ? "\\x%02X" : value < 0x10000 ? "\\u%04X" : "\\U%08X", value);
  return text;
}

std::string class_of(const CharacterSet& set) {
  std::string text;
  for (const auto& [first, last] : set.ranges()) {
    text += code_point(first);
    if (last > first) text += (last == first + 1 ? "" : "-") + code_point(last);
  }
  return "[" + text + "]";
}

}  // namespace

CharacterSet::CharacterSet(std::initializer_list<Range> ranges) : CharacterSet(std::vector<Range>(ranges)) {}

CharacterSet::CharacterSet(std::vector<Range> ranges) {
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.first < b.first; });
  for (const Range& range : ranges) {
    if (!ranges_.empty() && range.first <= ranges_.back().last + 1) {
      ranges_.back().last = std::max(ranges_.back().last, range.last);
    } else {
      ranges_.push_back(range);
    }
  }
}

CharacterSet CharacterSet::all() { return {{0, 0xD7FF}, {0xE000, kLast}}; }

std::optional<CharacterSet> CharacterSet::named(std::string_view name) {
  for (const std::string_view prefix : {"Script=", "sc=", "Script_Extensions=", "scx=", "General_Category=", "gc="}) {
    if (name.starts_with(prefix)) return named(name.substr(prefix.size()));
  }
  for (const auto& [long_name, short_name] : kLongNames) {
    if (name == long_name) return named(short_name);
  }
  if (name == "Any") return all();
  if (name == "ASCII") return CharacterSet{{0, 0x7F}};
  std::vector<Range> ranges;
  bool is_known = false;
  for (const NamedSet& set : named_sets()) {
    const std::string_view other = set.name;
    // One letter stands for all categories that begin with it.
    if (other != name && !(name.size() == 1 && other.size() == 2 && other[0] == name[0])) continue;
    is_known = true;
    for (std::size_t i = 0; i + 1 < set.bounds.size(); i += 2) {
      ranges.push_back({set.bounds[i], set.bounds[i + 1] - 1});
    }
  }
  if (!is_known) return std::nullopt;
  return sorted_set(std::move(ranges)).intersection(all());
}

void CharacterSet::add(const CharacterSet& more) {
  std::vector<Range> both = ranges_;
  both.insert(both.end(), more.ranges_.begin(), more.ranges_.end());
  *this = CharacterSet(std::move(both));
}

CharacterSet CharacterSet::complement() const {
  std::vector<Range> gaps;
  std::uint32_t next = 0;
  for (const auto& [first, last] : ranges_) {
    if (first > next) gaps.push_back({next, first - 1});
    next = last + 1;
  }
  if (next <= kLast) gaps.push_back({next, kLast});
  return CharacterSet(std::move(gaps));
}

CharacterSet CharacterSet::intersection(const CharacterSet& other) const {
  std::vector<Range> both;
  for (std::size_t i = 0, k = 0; i < ranges_.size() && k < other.ranges_.size();) {
    const Range &a = ranges_[i], &b = other.ranges_[k];
    const std::uint32_t first = std::max(a.first, b.first), last = std::min(a.last, b.last);
    if (first <= last) both.push_back({first, last});
    (a.last < b.last ? i : k) += 1;
  }
  return CharacterSet(std::move(both));
}

CharacterSet CharacterSet::both_cases() const {
  constexpr std::uint32_t kStep = 'a' - 'A';
  std::vector<Range> more = ranges_;
  for (const auto& [begin, end] : {Range{'A', 'Z'}, Range{0xC0, 0xD6}, Range{0xD8, 0xDE}}) {
    for (const auto& [first, last] : intersection({{begin, end}}).ranges_)
      more.push_back({first + kStep, last + kStep});
    for (const auto& [first, last] : intersection({{begin + kStep, end + kStep}}).ranges_) {
      more.push_back({first - kStep, last - kStep});
    }
  }
  return CharacterSet(std::move(more));
}

bool CharacterSet::contains(std::uint32_t value) const {
  const auto behind = std::upper_bound(ranges_.begin(), ranges_.end(), value,
                                       [](std::uint32_t one, const Range& range) { return one < range.first; });
  return behind != ranges_.begin() && std::prev(behind)->last >= value;
}

std::string CharacterSet::grammar(TextForm form) const {
  static const CharacterSet no_zero = CharacterSet{{1, kLast}}.intersection(all());
  if (form == TextForm::kPlain) {
    const CharacterSet plain = intersection(no_zero);
    return plain.is_empty() ? "" : class_of(plain);
  }
  // These characters are written as they are: all but quotes, backslashes and control characters.
  static const CharacterSet bare =
      CharacterSet{{0, 0x1F}, {'"', '"'}, {'\\', '\\'}, {0x7F, 0x7F}}.complement().intersection(all());
  static constexpr std::pair<char, char> kEscapes[] = {{'"', '"'},  {'\\', '\\'}, {'\b', 'b'}, {'\f', 'f'},
                                                       {'\n', 'n'}, {'\r', 'r'},  {'\t', 't'}};
  const CharacterSet plain = intersection(bare);
  std::string text = plain.is_empty() ? "" : class_of(plain), letters;
  for (const auto& [character, letter] : kEscapes) {
    if (!contains(static_cast<unsigned char>(character))) continue;
    letters += letter == '"' || letter == '\\' ? std::string("\\") + letter : std::string(1, letter);
  }
  if (letters.empty()) return text;
  const std::string escaped = "\"\\\\\" [" + letters + "]";
  return text.empty() ? "(" + escaped + ")" : "(" + text + " | " + escaped + ")";
}

}  // namespace winnow
