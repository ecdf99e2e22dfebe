#include "eval/python_str.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>

#include "base/utf8.h"

namespace winnow::eval {
namespace {

struct Range {
  char32_t first, last;
};
struct CaseRun {  // every `step`-th code point from first to last moves by `delta`
  char32_t first, last;
  std::uint32_t step;
  std::int32_t delta;
};
struct CaseText {  // one code point that becomes several
  char32_t from;
  char32_t to[3];  // unused ones are 0
};

#include "eval/unicode_tables.inc"

// Returns the last element of an ascending table that begins at c or before, or null.
template <typename Element, std::size_t n, typename First>
const Element* last_from(const Element (&table)[n], char32_t c, First first) {
  const Element* after =
      std::upper_bound(std::begin(table), std::end(table), c,
                       [&](char32_t value, const Element& element) { return value < first(element); });
  return after == std::begin(table) ? nullptr : after - 1;
}

template <std::size_t n>
bool contains(const Range (&table)[n], char32_t c) {
  const Range* range = last_from(table, c, [](const Range& r) { return r.first; });
  return range != nullptr && c <= range->last;
}

// Runs of step 2 interleave (every second letter is upper case), so the run before may hold c as well.
template <std::size_t n>
char32_t moved(const CaseRun (&table)[n], char32_t c) {
  const CaseRun* run = last_from(table, c, [](const CaseRun& r) { return r.first; });
  for (int back = 0; run != nullptr && back < 2; ++back) {
    if (c >= run->first && c <= run->last && (c - run->first) % run->step == 0) {
      return static_cast<char32_t>(static_cast<std::int32_t>(c) + run->delta);
    }
    run = run == std::begin(table) ? nullptr : run - 1;
  }
  return c;
}

template <std::size_t n, std::size_t n_several>
Text converted(TextView text, const CaseRun (&table)[n], const CaseText (&several)[n_several]) {
  Text result;
  result.reserve(text.size());
  for (const char32_t c : text) {
    const CaseText* texts = last_from(several, c, [](const CaseText& t) { return t.from; });
    if (texts != nullptr && texts->from == c) {
      for (const char32_t part : texts->to) {
        if (part != 0) result += part;
      }
    } else {
      result += moved(table, c);
    }
  }
  return result;
}

}  // namespace

Text decode(std::string_view utf8) {
  Text text;
  text.reserve(utf8.size());
  while (!utf8.empty()) {
    const Utf8Step step = first_character(utf8);
    text += step.character;
    utf8.remove_prefix(step.n_bytes);
  }
  return text;
}

std::string encode(TextView text) {
  std::string utf8;
  utf8.reserve(text.size());
  const auto put = [&](char32_t value) { utf8 += static_cast<char>(static_cast<unsigned char>(value)); };
  for (const char32_t c : text) {
    if (c < 0x80) {
      put(c);
    } else if (c < 0x800) {
      put(0xc0 | (c >> 6));
      put(0x80 | (c & 0x3f));
    } else if (c < 0x10000) {
      put(0xe0 | (c >> 12));
      put(0x80 | ((c >> 6) & 0x3f));
      put(0x80 | (c & 0x3f));
    } else {
      put(0xf0 | (c >> 18));
      put(0x80 | ((c >> 12) & 0x3f));
      put(0x80 | ((c >> 6) & 0x3f));
      put(0x80 | (c & 0x3f));
    }
  }
  return utf8;
}

bool is_space(char32_t c) { return contains(kSpaces, c); }
bool is_digit(char32_t c) { return contains(kDigits, c); }
bool is_ascii_digit(char32_t c) { return c >= '0' && c <= '9'; }
bool is_word_character(char32_t c) { return contains(kWordCharacters, c); }
bool is_han(char32_t c) { return c >= 0x4e00 && c <= 0x9fd5; }

Text lower(TextView text) { return converted(text, kLower, kLowerSeveral); }
Text upper(TextView text) { return converted(text, kUpper, kUpperSeveral); }

TextView strip(TextView text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

TextView strip_left(TextView text, char32_t c) {
  while (!text.empty() && text.front() == c) text.remove_prefix(1);
  return text;
}

std::vector<Text> runs_of(TextView text, bool (*test)(char32_t)) {
  std::vector<Text> runs;
  bool inside = false;
  for (const char32_t c : text) {
    const bool now = test(c);
    if (now && !inside) runs.emplace_back();
    if (now) runs.back() += c;
    inside = now;
  }
  return runs;
}

std::vector<Text> split(TextView text) {
  return runs_of(text, [](char32_t c) { return !is_space(c); });
}

std::vector<Text> split_at(TextView text, char32_t at) {
  std::vector<Text> parts(1);
  for (const char32_t c : text) {
    if (c == at) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

Text join(const std::vector<Text>& parts, TextView between) {
  Text joined;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) joined += between;
    joined += parts[i];
  }
  return joined;
}

Text replace_all(Text text, TextView from, TextView to) {
  for (std::size_t at = text.find(from); at != Text::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return text;
}

}  // namespace winnow::eval
