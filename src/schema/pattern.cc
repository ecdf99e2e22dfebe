#include "schema/pattern.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/utf8.h"
#include "winnow/error.h"

namespace winnow {
namespace {

constexpr int kMostGroups = 50;
constexpr std::uint32_t kMostRepeats = 1'000'000'000;

[[noreturn]] void refuse_pattern(const std::string& what) {
  throw Error(ErrorCode::kInvalidArgument, "'pattern' " + what);
}

// Returns the set of \d, \w or \s or, for a capital letter, of all others; nullopt for another letter.
std::optional<CharacterSet> class_named(char letter) {
  switch (letter) {
    case 'd':
      return CharacterSet{{'0', '9'}};
    case 'w':
      return CharacterSet{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
    case 's':
      return CharacterSet{{'\t', '\r'},     {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
                          {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
    case 'D':
    case 'W':
    case 'S':
      return class_named(static_cast<char>(letter + ('a' - 'A')))->complement().intersection(CharacterSet::all());
    default:
      return std::nullopt;
  }
}

Pattern set_pattern(CharacterSet set) { return {.kind = Pattern::Kind::kSet, .set = std::move(set)}; }

// Returns the character of a UTF-8 text at `position`, and moves `position` to the next one.
std::uint32_t take_code_point(std::string_view text, std::size_t& position) {
  const auto lead = static_cast<unsigned char>(text[position++]);
  std::uint32_t value = lead < 0x80 ? lead : lead < 0xE0 ? lead & 0x1FU : lead < 0xF0 ? lead & 0x0FU : lead & 0x07U;
  for (; position < text.size() && (static_cast<unsigned char>(text[position]) & 0xC0) == 0x80; ++position) {
    value = value << 6 | (static_cast<unsigned char>(text[position]) & 0x3FU);
  }
  return value;
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Pattern run() {
    ignores_case_ = take("(?i)");
    Pattern whole = choice(0);
    if (position_ < text_.size()) refuse_pattern("has a ')' without a '('");
    return whole;
  }

 private:
  using Kind = Pattern::Kind;

  bool at_end() const { return position_ >= text_.size(); }
  char peek(std::size_t ahead = 0) const { return position_ + ahead < text_.size() ? text_[position_ + ahead] : '\0'; }
  bool take(std::string_view what) {
    if (text_.substr(position_, what.size()) != what) return false;
    position_ += what.size();
    return true;
  }
  static bool is_digit(char c) { return c >= '0' && c <= '9'; }

  Pattern choice(int depth) {
    if (depth > kMostGroups) refuse_pattern("is nested deeper than " + std::to_string(kMostGroups) + " levels");
    Pattern all{.kind = Kind::kChoice};
    do {
      Pattern sequence{.kind = Kind::kSequence};
      while (!at_end() && peek() != '|' && peek() != ')') sequence.children.push_back(repeated(item(depth)));
      all.children.push_back(std::move(sequence));
    } while (take("|"));
    return all.children.size() == 1 ? std::move(all.children.front()) : all;
  }

  Pattern item(int depth) {
    const char c = peek();
    if (c == '*' || c == '+' || c == '?' || (c == '{' && is_count())) {
      refuse_pattern("has a repetition (*, +, ? or {}) with nothing before it");
    }
    if (take("^")) return {.kind = Kind::kBegin};
    if (take("$")) return {.kind = Kind::kEnd};
    if (take("(")) return group(depth);
    if (take("[")) return character(read_class());
    if (take(".")) {
      return set_pattern(
          CharacterSet{{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}.complement().intersection(CharacterSet::all()));
    }
    if (c == '\\') {
      if (take("\\b")) return {.kind = Kind::kWordBoundary};
      if (take("\\B")) return {.kind = Kind::kWordBoundary, .is_negated = true};
      if (take("\\A")) return {.kind = Kind::kBegin};
      if (take("\\Z") || take("\\z")) return {.kind = Kind::kEnd};
    }
    if (auto named = named_class()) return character(std::move(*named));
    const std::uint32_t value = code_point();
    return character({{value, value}});
  }

  Pattern character(CharacterSet set) const { return set_pattern(ignores_case_ ? set.both_cases() : std::move(set)); }

  // Reads a group whose '(' has been read.
  Pattern group(int depth) {
    std::optional<bool> is_negated;  // set for look-ahead
    if (take("?=")) {
      is_negated = false;
    } else if (take("?!")) {
      is_negated = true;
    } else if (take("?<=") || take("?<!")) {
      refuse_pattern("has a look-behind, which is not supported: write what comes before as part of the pattern");
    } else if (take("?<") || take("?P<")) {
      while (!at_end() && !take(">")) ++position_;
    } else if (peek() == '?' && !take("?:")) {
      refuse_pattern("has an unsupported kind of group: use ( ), (?: ), (?= ) or (?! )");
    }
    Pattern inner = choice(depth + 1);
    if (!take(")")) refuse_pattern("has a '(' without a ')'");
    if (!is_negated) return inner;
    Pattern look{.kind = Kind::kLookAhead, .is_negated = *is_negated};
    look.children.push_back(std::move(inner));
    return look;
  }

  // Reads a class such as \d or \p{..} and returns its set, or nullopt if there is none here.
  std::optional<CharacterSet> named_class() {
    if (peek() != '\\') return std::nullopt;
    if (auto set = class_named(peek(1))) {
      position_ += 2;
      return set;
    }
    const bool is_negated = peek(1) == 'P';
    if ((peek(1) != 'p' && !is_negated) || peek(2) == '\0') return std::nullopt;
    position_ += 2;
    const std::size_t begin = position_ + 1;
    const std::size_t end = peek() == '{' ? text_.find('}', begin) : position_ + 1;
    if (end == std::string_view::npos) refuse_pattern("has a '\\p{' without a '}'");
    const std::string_view name = peek() == '{' ? text_.substr(begin, end - begin) : text_.substr(position_, 1);
    position_ = peek() == '{' ? end + 1 : end;
    const std::optional<CharacterSet> set = CharacterSet::named(name);
    if (!set) refuse_pattern("has the property \\p{" + std::string(name.substr(0, 40)) + "}, which is not supported");
    return is_negated ? set->complement().intersection(CharacterSet::all()) : *set;
  }

  // Reads a character or an escape and returns its code point.
  std::uint32_t code_point() {
    if (at_end()) refuse_pattern("ends too early");
    if (peek() != '\\') return take_code_point(text_, position_);
    const char letter = peek(1);
    position_ += 2;
    static constexpr std::pair<char, char> kLetters[] = {{'n', '\n'}, {'r', '\r'}, {'t', '\t'},
                                                         {'f', '\f'}, {'v', '\v'}, {'a', '\a'}};
    for (const auto& [name, value] : kLetters) {
      if (name == letter) return static_cast<unsigned char>(value);
    }
    if (letter == '0' && !is_digit(peek())) return 0;
    if (letter == 'x') return hexadecimal(2);
    if (letter == 'u') return unicode_escape();
    if (letter == 'c') return static_cast<unsigned char>(take_letter()) % 32U;
    if (is_digit(letter)) {
      refuse_pattern(std::string("has the reference \\") + letter + " to a group, which is not supported");
    }
    const bool is_word = letter == '_' || (letter >= 'A' && letter <= 'Z') || (letter >= 'a' && letter <= 'z');
    if (letter == '\0') refuse_pattern("has a \\ at its end");
    if (is_word && letter != '_') {
      refuse_pattern(std::string("has the escape \\") + letter + ", which is not supported");
    }
    --position_;
    return take_code_point(text_, position_);
  }

  char take_letter() {
    const char letter = peek();
    if ((letter | 0x20) < 'a' || (letter | 0x20) > 'z') refuse_pattern("has a \\c without a letter");
    ++position_;
    return letter;
  }

  // Reads the rest of an escape after \u: four digits, twice four for a code point beyond U+FFFF, or {..}.
  std::uint32_t unicode_escape() {
    if (take("{")) {
      std::uint32_t value = 0;
      do {
        value = value << 4 | hexadecimal(1);
        if (value > CharacterSet::kLast) refuse_pattern("has an escape above U+10FFFF");
      } while (!take("}"));
      return value;
    }
    const std::uint32_t first = hexadecimal(4);
    if (first < 0xD800 || first > 0xDBFF || !take("\\u")) return first;
    const std::uint32_t second = hexadecimal(4);
    if (second < 0xDC00 || second > 0xDFFF) refuse_pattern("has half of a surrogate pair");
    return 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
  }

  std::uint32_t hexadecimal(int n) {
    std::uint32_t value = 0;
    for (; n > 0; --n, ++position_) {
      const char c = peek(), lower = static_cast<char>(c | 0x20);
      if (!is_digit(c) && !(lower >= 'a' && lower <= 'f')) {
        refuse_pattern("has an escape with too few hexadecimal digits");
      }
      value = value << 4 | static_cast<std::uint32_t>(is_digit(c) ? c - '0' : lower - 'a' + 10);
    }
    return value;
  }

  // Reads a character class whose '[' has been read.
  CharacterSet read_class() {
    std::vector<CharacterSet::Range> ranges;
    const bool is_negated = take("^");
    while (!take("]")) {
      if (at_end()) refuse_pattern("has a '[' without a ']'");
      if (const auto named = named_class()) {
        ranges.insert(ranges.end(), named->ranges().begin(), named->ranges().end());
        continue;
      }
      const std::uint32_t first = take("\\b") ? '\b' : code_point();
      std::uint32_t last = first;
      // A - before a class such as \d does not make a range and stands for itself.
      const bool is_range = peek() == '-' && peek(1) != ']' &&
                            !(peek(1) == '\\' && (class_named(peek(2)) || peek(2) == 'p' || peek(2) == 'P'));
      if (is_range) {
        ++position_;
        last = take("\\b") ? '\b' : code_point();
      }
      if (last < first) refuse_pattern("has a range whose end is before its beginning");
      ranges.push_back({first, last});
    }
    CharacterSet set(std::move(ranges));
    if (ignores_case_) set = set.both_cases();
    return (is_negated ? set.complement() : set).intersection(CharacterSet::all());
  }

  // Returns whether a '{' here begins {m}, {m,} or {m,n}; otherwise it stands for itself.
  bool is_count() const {
    std::size_t at = position_ + 1;
    const auto digits = [&] {
      const std::size_t begin = at;
      while (at < text_.size() && is_digit(text_[at])) ++at;
      return at > begin;
    };
    if (peek() != '{' || !digits()) return false;
    if (at < text_.size() && text_[at] == ',') {
      ++at;
      digits();
    }
    return at < text_.size() && text_[at] == '}';
  }

  std::uint32_t count() {
    std::uint32_t value = 0;
    for (; is_digit(peek()); ++position_) {
      value = value * 10 + static_cast<std::uint32_t>(peek() - '0');
      if (value > kMostRepeats / 10) {
        refuse_pattern("repeats more than " + std::to_string(kMostRepeats / 10) + " times");
      }
    }
    return value;
  }

  // Reads a repetition operator, if there is one, and returns the pattern that it makes of `one`.
  Pattern repeated(Pattern one) {
    Pattern many{.kind = Kind::kRepeat};
    if (take("*")) {
      many.most = Pattern::kUnbounded;
    } else if (take("+")) {
      many.least = 1;
      many.most = Pattern::kUnbounded;
    } else if (take("?")) {
      many.most = 1;
    } else if (is_count()) {
      ++position_;
      many.least = many.most = count();
      if (take(",")) many.most = peek() == '}' ? Pattern::kUnbounded : count();
      if (many.most < many.least) refuse_pattern("has a repetition whose second number is smaller than the first");
      ++position_;
    } else {
      return one;
    }
    if (one.is_assertion()) refuse_pattern("repeats something that matches no characters");
    if (take("+")) refuse_pattern("has a possessive repetition, which is not supported: leave its second + out");
    take("?");  // a lazy repetition matches the same texts
    if (peek() == '*' || peek() == '+' || peek() == '?' || is_count()) refuse_pattern("has two repetitions in a row");
    many.children.push_back(std::move(one));
    return many;
  }

  std::string_view text_;
  std::size_t position_ = 0;
  bool ignores_case_ = false;
};

}  // namespace

Pattern Pattern::parse(std::string_view text, std::size_t n_most) {
  if (text.size() > n_most) refuse_pattern("has more than " + std::to_string(n_most) + " bytes: shorten it");
  if (find_invalid_utf8(text)) refuse_pattern("is not UTF-8");
  return Parser(text).run();
}

Pattern Pattern::literal(std::string_view text) {
  Pattern all{.kind = Kind::kSequence};
  for (std::size_t position = 0; position < text.size();) {
    const std::uint32_t value = take_code_point(text, position);
    all.children.push_back(set_pattern({{value, value}}));
  }
  return all;
}

bool Pattern::is_assertion() const {
  return kind == Kind::kLookAhead || kind == Kind::kBegin || kind == Kind::kEnd || kind == Kind::kWordBoundary;
}

std::size_t Pattern::size() const {
  std::size_t n = 1;
  for (const Pattern& child : children) n += child.size();
  return n;
}

}  // namespace winnow
