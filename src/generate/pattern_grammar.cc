#include "generate/pattern_grammar.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/utf8.h"
#include "winnow/error.h"

namespace winnow {
namespace {

constexpr std::size_t kMostBytes = 1000;
constexpr int kMostNested = 50;
constexpr std::uint32_t kMostRepeats = 1000;
constexpr std::uint32_t kLastCodePoint = 0x10FFFF;

[[noreturn]] void refuse(const std::string& what) { throw Error(ErrorCode::kInvalidArgument, "'pattern' " + what); }

// Code points, ascending, with gaps between the ranges.
class CharacterSet {
 public:
  void add(std::uint32_t first, std::uint32_t last) { ranges_.emplace_back(first, last); }
  void add(const CharacterSet& more) { ranges_.insert(ranges_.end(), more.ranges_.begin(), more.ranges_.end()); }

  CharacterSet complement() const {
    CharacterSet result;
    std::uint32_t next = 0;
    for (const auto& [first, last] : sorted()) {
      if (first > next) result.add(next, first - 1);
      next = std::max(next, last + 1);
    }
    if (next <= kLastCodePoint) result.add(next, kLastCodePoint);
    return result;
  }

  // One of them as a JSON string has it.
  std::string grammar() const {
    // What stands as it is: no quote, backslash, control character or half of a surrogate pair.
    CharacterSet escaped;
    for (const auto& [first, last] :
         {std::pair{0U, 0x1FU}, {0x22U, 0x22U}, {0x5CU, 0x5CU}, {0x7FU, 0x7FU}, {0xD800U, 0xDFFFU}}) {
      escaped.add(first, last);
    }
    CharacterSet others = complement();
    others.add(escaped);
    std::string plain;
    for (const auto& [first, last] : others.complement().sorted()) {
      plain += code_point(first) + (first == last ? "" : "-" + code_point(last));
    }
    std::string text = plain.empty() ? "" : "[" + plain + "]";
    static constexpr std::pair<char, char> kEscapes[] = {{'"', '"'},  {'\\', '\\'}, {'\b', 'b'}, {'\f', 'f'},
                                                         {'\n', 'n'}, {'\r', 'r'},  {'\t', 't'}};
    std::string letters;
    for (const auto& [character, letter] : kEscapes) {
      if (!contains(static_cast<unsigned char>(character))) continue;
      letters += letter == '"' || letter == '\\' ? std::string("\\") + letter : std::string(1, letter);
    }
    if (!letters.empty()) text += std::string(text.empty() ? "" : " | ") + "\"\\\\\" [" + letters + "]";
    if (text.empty()) refuse("has a class in which no character is left");
    return "(" + text + ")";
  }

 private:
  bool contains(std::uint32_t value) const {
    return std::any_of(ranges_.begin(), ranges_.end(),
                       [&](const auto& range) { return range.first <= value && value <= range.second; });
  }
  std::vector<std::pair<std::uint32_t, std::uint32_t>> sorted() const {
    auto ranges = ranges_;
    std::sort(ranges.begin(), ranges.end());
    return ranges;
  }
  static std::string code_point(std::uint32_t value) {
    char text[16];
    std::snprintf(text, sizeof text, "\\U%08X", value);
    return text;
  }

  std::vector<std::pair<std::uint32_t, std::uint32_t>> ranges_;
};

CharacterSet set_of(std::initializer_list<std::pair<std::uint32_t, std::uint32_t>> ranges) {
  CharacterSet set;
  for (const auto& [first, last] : ranges) set.add(first, last);
  return set;
}

// \d, \w, \s and, with a capital letter, all others.
std::optional<CharacterSet> named_set(char letter) {
  switch (letter) {
    case 'd':
      return set_of({{'0', '9'}});
    case 'w':
      return set_of({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}});
    case 's':
      return set_of({{'\t', '\r'},
                     {' ', ' '},
                     {0xA0, 0xA0},
                     {0x1680, 0x1680},
                     {0x2000, 0x200A},
                     {0x2028, 0x2029},
                     {0x202F, 0x202F},
                     {0x205F, 0x205F},
                     {0x3000, 0x3000},
                     {0xFEFF, 0xFEFF}});
    case 'D':
    case 'W':
    case 'S':
      return named_set(static_cast<char>(letter + ('a' - 'A')))->complement();
    default:
      return std::nullopt;
  }
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  std::string run() {
    const std::string text = alternatives(0);
    if (position_ < text_.size()) refuse("has a ')' without a '('");
    return "\"\\\"\" " + text + " \"\\\"\"";
  }

 private:
  bool at_end() const { return position_ >= text_.size(); }
  char peek(std::size_t ahead = 0) const { return position_ + ahead < text_.size() ? text_[position_ + ahead] : '\0'; }
  bool take(std::string_view what) {
    if (text_.substr(position_, what.size()) != what) return false;
    position_ += what.size();
    return true;
  }

  // Each alternative of the outermost level has its own anchors.
  std::string alternatives(int depth) {
    if (depth > kMostNested) refuse("is nested deeper than " + std::to_string(kMostNested));
    std::string text;
    do {
      text += (text.empty() ? "" : " | ") + sequence(depth);
    } while (take("|"));
    return "(" + text + ")";
  }

  std::string sequence(int depth) {
    const bool begins = depth == 0 && take("^");
    std::string text;
    bool ends = false;
    while (!at_end() && peek() != '|' && peek() != ')') {
      if (depth == 0 && peek() == '$' && (peek(1) == '|' || position_ + 1 == text_.size())) {
        ++position_;
        ends = true;
        break;
      }
      text += (text.empty() ? "" : " ") + repeated(item(depth));
    }
    if (depth > 0) return text.empty() ? "\"\"" : text;
    return std::string(begins ? "" : "char* ") + (text.empty() ? "\"\"" : text) + (ends ? "" : " char*");
  }

  std::string item(int depth) {
    const char c = peek();
    if (c == '^' || c == '$') refuse("has ^ or $ elsewhere than at its ends");
    if (c == '*' || c == '+' || c == '?' || c == '{') refuse("repeats nothing");
    if (c == '(') {
      ++position_;
      if (peek() == '?' && !take("?:")) refuse("has a group of another kind than ( ) and (?: )");
      std::string text = alternatives(depth + 1);
      if (!take(")")) refuse("has a '(' without a ')'");
      return text;
    }
    if (c == '[') {
      ++position_;
      return read_class().grammar();
    }
    if (c == '.') {
      ++position_;
      return set_of({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}).complement().grammar();
    }
    if (c == '\\') {
      if (const auto named = named_set(peek(1))) {
        position_ += 2;
        return named->grammar();
      }
    }
    const std::uint32_t value = character(false);
    return set_of({{value, value}}).grammar();
  }

  std::uint32_t character(bool in_class) {
    if (at_end()) refuse("ends too early");
    if (peek() != '\\') {
      std::size_t n = 1;
      const auto lead = static_cast<unsigned char>(peek());
      std::uint32_t value = lead < 0x80 ? lead : lead < 0xE0 ? lead & 0x1FU : lead < 0xF0 ? lead & 0x0FU : lead & 0x07U;
      for (; (static_cast<unsigned char>(peek(n)) & 0xC0) == 0x80; ++n) {
        value = value << 6 | (static_cast<unsigned char>(peek(n)) & 0x3FU);
      }
      position_ += n;
      return value;
    }
    const char letter = peek(1);
    position_ += 2;
    static constexpr std::pair<char, char> kLetters[] = {{'n', '\n'}, {'r', '\r'}, {'t', '\t'},
                                                         {'f', '\f'}, {'v', '\v'}, {'0', '\0'}};
    for (const auto& [name, value] : kLetters) {
      if (name == letter) return static_cast<unsigned char>(value);
    }
    if (in_class && letter == 'b') return '\b';
    if (letter == 'x') return hexadecimal(2);
    if (letter == 'u') return hexadecimal(4);
    // ECMAScript's syntax characters, and - and the delimiter as people write them.
    if (letter != '\0' &&
        std::string_view("^$\\.*+?()[]{}|/-_@#%&=:;,!<>'\"~` ").find(letter) != std::string_view::npos) {
      return static_cast<unsigned char>(letter);
    }
    refuse(std::string("has the escape \\") + (letter == '\0' ? "" : std::string(1, letter)) +
           ", which is not supported");
  }

  std::uint32_t hexadecimal(int n) {
    std::uint32_t value = 0;
    for (; n > 0; --n, ++position_) {
      const char c = peek(), lower = static_cast<char>(c | 0x20);
      const bool is_digit = c >= '0' && c <= '9';
      if (!is_digit && !(lower >= 'a' && lower <= 'f')) refuse("has an escape with too few hexadecimal digits");
      value = value << 4 | static_cast<std::uint32_t>(is_digit ? c - '0' : lower - 'a' + 10);
    }
    return value;
  }

  // Behind '['.
  CharacterSet read_class() {
    CharacterSet set;
    const bool is_negated = take("^");
    while (!take("]")) {
      if (at_end()) refuse("has a '[' without a ']'");
      if (peek() == '\\') {
        if (const auto named = named_set(peek(1))) {
          position_ += 2;
          set.add(*named);
          continue;
        }
      }
      const std::uint32_t first = character(true);
      std::uint32_t last = first;
      if (peek() == '-' && peek(1) != ']') {
        ++position_;
        if (peek() == '\\' && named_set(peek(1))) refuse("has a class as the end of a range");
        last = character(true);
      }
      if (last < first) refuse("has a range of which the end is before the beginning");
      set.add(first, last);
    }
    return is_negated ? set.complement() : set;
  }

  std::uint32_t count() {
    std::uint32_t value = 0;
    if (!(peek() >= '0' && peek() <= '9')) refuse("has a repetition without a number");
    for (; peek() >= '0' && peek() <= '9'; ++position_) {
      value = value * 10 + static_cast<std::uint32_t>(peek() - '0');
      if (value > kMostRepeats) refuse("repeats more than " + std::to_string(kMostRepeats) + " times");
    }
    return value;
  }

  // With what is behind it that says how often.
  std::string repeated(std::string text) {
    const char c = peek();
    if (c == '*' || c == '+' || c == '?') {
      ++position_;
      text += c;
    } else if (take("{")) {
      const std::uint32_t least = count();
      std::string bounds = std::to_string(least);
      if (take(",")) {
        bounds += ",";
        if (peek() != '}') {
          const std::uint32_t most = count();
          if (most < least) refuse("has a repetition with a smaller number behind a larger one");
          bounds += std::to_string(most);
        }
      }
      if (!take("}")) refuse("has a '{' without a '}'");
      text += "{" + bounds + "}";
    } else {
      return text;
    }
    take("?");  // as few as possible: the same texts
    const char more = peek();
    if (more == '*' || more == '+' || more == '?' || more == '{') refuse("repeats a repetition");
    return text;
  }

  std::string_view text_;
  std::size_t position_ = 0;
};

struct Format {
  const char* name;
  std::int64_t least, most;  // characters
  std::string grammar;       // between the quotes
};

const std::vector<Format>& formats() {
  // Of the years 1000 to 9999, and real days of theirs; times with an offset, as RFC 3339 has it.
  const std::string date =
      "([1-9] [0-9]{3} \"-\" ((\"0\" [13578] | \"1\" [02]) \"-\" (\"0\" [1-9] | [12] [0-9] | \"3\" [01]) | "
      "(\"0\" [469] | \"11\") \"-\" (\"0\" [1-9] | [12] [0-9] | \"30\") | "
      "\"02-\" (\"0\" [1-9] | \"1\" [0-9] | \"2\" [0-8])) | "
      "([1-9] [0-9] (\"0\" [48] | [2468] [048] | [13579] [26]) | ([2468] [048] | [13579] [26]) \"00\") \"-02-29\")";
  const std::string hours_and_minutes = "([01] [0-9] | \"2\" [0-3]) \":\" [0-5] [0-9]";
  const std::string time =
      hours_and_minutes + " \":\" [0-5] [0-9] (\".\" [0-9]{1,6})? (\"Z\" | [-+] " + hours_and_minutes + ")";
  const std::string seconds = "[0-9]{1,4} \"S\"", minutes = "[0-9]{1,4} \"M\" (" + seconds + ")?";
  const std::string part_of_day =
      "\"T\" ([0-9]{1,4} \"H\" (" + minutes + " | " + seconds + ")? | " + minutes + " | " + seconds + ")";
  const std::string domain = "([a-z0-9] ([a-z0-9-]{0,20} [a-z0-9])? \".\"){1,3} [a-z]{2,10}";
  const std::string octet = "(\"25\" [0-5] | \"2\" [0-4] [0-9] | \"1\" [0-9]{2} | [1-9]? [0-9])";
  static const std::vector<Format> all = {
      {"date", 10, 10, date},
      {"time", 9, 21, time},
      {"date-time", 20, 32, date + " \"T\" " + time},
      {"duration", 3, 24, "\"P\" ([0-9]{1,6} \"D\" (" + part_of_day + ")? | " + part_of_day + ")"},
      {"uuid", 36, 36, "[0-9a-f]{8} \"-\" [0-9a-f]{4} \"-\" [0-9a-f]{4} \"-\" [0-9a-f]{4} \"-\" [0-9a-f]{12}"},
      {"email", 6, 142, "[A-Za-z0-9] ([._%+-]? [A-Za-z0-9]){0,30} \"@\" " + domain},
      {"ipv4", 7, 15, octet + " (\".\" " + octet + "){3}"},
      {"uri", 11, 700,
       "\"http\" \"s\"? \"://\" " + domain +
           " (\":\" [1-9] [0-9]{0,3})? (\"/\" [A-Za-z0-9._~%+-]{0,50}){0,10} (\"?\" [A-Za-z0-9._~%+&=-]{0,50})?"}};
  return all;
}

}  // namespace

std::string pattern_grammar(const std::string& pattern) {
  if (pattern.size() > kMostBytes) refuse("may have " + std::to_string(kMostBytes) + " bytes");
  if (find_invalid_utf8(pattern)) refuse("is not UTF-8");
  return Parser(pattern).run();
}

std::string format_grammar(const std::string& format, std::int64_t min_length, std::int64_t max_length) {
  std::string names;
  for (const Format& known : formats()) {
    names += (names.empty() ? "" : ", ") + std::string(known.name);
    if (format != known.name) continue;
    if (known.least < min_length || (max_length >= 0 && known.most > max_length)) {
      throw Error(ErrorCode::kInvalidArgument, "'format' " + format + " has texts of " + std::to_string(known.least) +
                                                   " to " + std::to_string(known.most) +
                                                   " characters, which the lengths do not allow");
    }
    return std::string("\"\\\"\" ") + known.grammar + " \"\\\"\"";
  }
  throw Error(ErrorCode::kInvalidArgument, "'format' may be " + names);
}

}  // namespace winnow
