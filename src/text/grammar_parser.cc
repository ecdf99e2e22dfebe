#include <llama.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/utf8.h"
#include "text/grammar.h"
#include "text/left_recursion.h"
#include "text/tokenizer.h"
#include "winnow/error.h"

namespace winnow {
namespace {

[[noreturn]] void refuse(const std::string& sentence) { throw Error(ErrorCode::kInvalidArgument, sentence); }

// A parser of GBNF in libllama's syntax.
class Parser {
 public:
  Parser(std::string_view text, const llama_vocab* vocab, const GrammarLimits& limits)
      : text_(text), vocab_(vocab), limits_(limits) {}

  Grammar run() {
    if (text_.size() > kMostBytes) {
      refuse("the grammar has " + std::to_string(text_.size()) + " bytes, more than the " + std::to_string(kMostBytes) +
             " allowed: shorten it");
    }
    if (text_.find('\0') != std::string_view::npos) refuse("the grammar holds a zero byte: remove it");
    if (const auto offset = find_invalid_utf8(text_)) {
      refuse("the grammar is not UTF-8 at byte " + std::to_string(*offset) + ": convert it");
    }
    skip_space(true);
    while (!at_end()) read_rule();
    for (const auto& [name, rule] : ids_) {
      if (!rules_[rule].is_defined) refuse("the grammar uses the rule '" + name + "' but does not define it");
    }
    const auto root = ids_.find("root");
    if (root == ids_.end()) refuse("the grammar has no rule named 'root': give the rule to start with this name");
    grammar_.root = root->second;
    for (const Rule& rule : rules_) {
      std::vector<std::uint32_t>& sequences = grammar_.rules.emplace_back();
      for (const Sequence& sequence : rule.alternates) {
        sequences.push_back(static_cast<std::uint32_t>(grammar_.symbols.size()));
        grammar_.symbols.insert(grammar_.symbols.end(), sequence.begin(), sequence.end());
        grammar_.symbols.push_back({});
      }
    }
    const std::vector<bool> is_empty = find_empty_rules(grammar_);
    for (Grammar::Repeat& repeat : grammar_.repeats) repeat.is_empty = is_empty[repeat.rule];
    return std::move(grammar_);
  }

 private:
  static constexpr std::size_t kMostBytes = std::size_t{4} << 20;
  // No model has longer tokens, and libllama's tokenizer recurses for each character of what is none.
  static constexpr std::size_t kMostTokenBytes = 1024;
  static constexpr std::uint64_t kMostRepetitions = 1'000'000'000;
  static constexpr int kMostNested = 200;

  using Sequence = std::vector<Grammar::Symbol>;
  struct Rule {
    std::vector<Sequence> alternates;
    bool is_defined = false;
  };

  bool at_end() const { return position_ >= text_.size(); }
  char peek(std::size_t ahead = 0) const { return position_ + ahead < text_.size() ? text_[position_ + ahead] : '\0'; }
  static bool is_digit(char c) { return c >= '0' && c <= '9'; }
  static bool is_word(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || is_digit(c); }

  [[noreturn]] void fail(const std::string& what) const {
    const std::string_view before = text_.substr(0, std::min(position_, text_.size()));
    const auto line = 1 + std::count(before.begin(), before.end(), '\n');
    const std::size_t column = before.size() - (before.rfind('\n') + 1) + 1;  // npos + 1 is 0
    refuse("the grammar does not parse at line " + std::to_string(line) + ", byte " + std::to_string(column) + ": " +
           what);
  }

  void skip_space(bool newline_too) {
    while (!at_end()) {
      const char c = peek();
      if (c == '#') {
        while (!at_end() && peek() != '\r' && peek() != '\n') ++position_;
      } else if (c == ' ' || c == '\t' || (newline_too && (c == '\r' || c == '\n'))) {
        ++position_;
      } else {
        return;
      }
    }
  }

  std::string_view read_name() {
    const std::size_t begin = position_;
    while (is_word(peek())) ++position_;
    if (position_ == begin) fail("a rule's name is expected here");
    return text_.substr(begin, position_ - begin);
  }

  std::uint32_t rule_named(std::string_view name) {
    const auto [entry, is_new] = ids_.try_emplace(std::string(name), static_cast<std::uint32_t>(rules_.size()));
    if (is_new) add_rule();
    return entry->second;
  }

  std::uint32_t add_rule() {
    count_rules(1);
    rules_.emplace_back();
    return static_cast<std::uint32_t>(rules_.size()) - 1;
  }

  void count_rules(std::uint64_t n) {
    n_rules_ += n;
    if (n_rules_ <= limits_.n_rules) return;
    fail("more than " + std::to_string(limits_.n_rules) + " rules: simplify it");
  }

  void count_symbols(std::uint64_t n) {
    n_symbols_ += n;
    if (n_symbols_ <= limits_.n_symbols) return;
    fail("more than " + std::to_string(limits_.n_symbols) + " symbols: simplify it");
  }

  // Reads a character or an escape and returns its code point.
  std::uint32_t read_character() {
    if (at_end()) fail("the grammar ends inside a literal or character class");
    if (peek() != '\\') {
      const auto lead = static_cast<unsigned char>(peek());
      std::uint32_t value = lead < 0x80 ? lead : lead < 0xE0 ? lead & 0x1FU : lead < 0xF0 ? lead & 0x0FU : lead & 0x07U;
      for (++position_; !at_end() && (static_cast<unsigned char>(peek()) & 0xC0) == 0x80; ++position_) {
        value = (value << 6) | (static_cast<unsigned char>(peek()) & 0x3FU);
      }
      return value;
    }
    const char escape = peek(1);
    const int n_hex = escape == 'x' ? 2 : escape == 'u' ? 4 : escape == 'U' ? 8 : 0;
    if (n_hex == 0 && (escape == '\0' || std::string_view("trn\\\"[]-").find(escape) == std::string_view::npos)) {
      fail("unknown escape; known are \\x \\u \\U \\t \\r \\n \\\\ \\\" \\[ \\] \\-");
    }
    position_ += 2;
    if (n_hex == 0) {
      return static_cast<unsigned char>(escape == 't' ? '\t' : escape == 'r' ? '\r' : escape == 'n' ? '\n' : escape);
    }
    std::uint32_t value = 0;
    for (int i = 0; i < n_hex; ++i, ++position_) {
      const char c = peek();
      const int lower = c | 0x20;
      if (!is_digit(c) && !(lower >= 'a' && lower <= 'f')) {
        fail("the escape needs " + std::to_string(n_hex) + " hexadecimal digits");
      }
      value = (value << 4) | static_cast<std::uint32_t>(is_digit(c) ? c - '0' : lower - 'a' + 10);
    }
    return value;
  }

  // Reads a character class whose '[' has been read.
  void read_class(Sequence& sequence) {
    Grammar::CharacterClass read;
    read.is_negated = peek() == '^';
    if (read.is_negated) ++position_;
    const std::size_t begin = position_;
    while (peek() != ']') {
      const std::uint32_t first = read_character();
      std::uint32_t last = first;
      if (peek() == '-' && peek(1) != ']') {
        ++position_;
        last = read_character();
      }
      count_symbols(1);
      if (first <= last) read.ranges.push_back({first, last});
    }
    const bool is_empty = position_ == begin;
    ++position_;
    if (is_empty) return;  // adds no symbol, like the literal ""
    std::sort(read.ranges.begin(), read.ranges.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<Grammar::Range> apart;
    for (const Grammar::Range& range : read.ranges) {
      if (!apart.empty() && (range.first <= apart.back().last || range.first == apart.back().last + 1)) {
        apart.back().last = std::max(apart.back().last, range.last);
      } else {
        apart.push_back(range);
      }
    }
    read.ranges = std::move(apart);
    sequence.push_back({Grammar::Kind::kClass, static_cast<std::uint32_t>(grammar_.classes.size())});
    grammar_.classes.push_back(std::move(read));
  }

  // Reads <[id]> or <text of one token> and returns the token.
  std::uint32_t read_token() {
    const std::size_t begin = position_;
    if (peek() != '<') fail("'<' is expected here");
    if (peek(1) == '[') {
      position_ += 2;
      const std::uint64_t id = read_count(std::numeric_limits<std::uint32_t>::max());
      if (peek() != ']' || peek(1) != '>') fail("']>' is expected here");
      position_ += 2;
      return static_cast<std::uint32_t>(id);
    }
    while (!at_end() && peek() != '>') ++position_;
    if (at_end()) fail("'>' is expected after a token");
    ++position_;
    const std::string_view text = text_.substr(begin, position_ - begin);
    if (text.size() > kMostTokenBytes) {
      fail("a token's text may have " + std::to_string(kMostTokenBytes) +
           " bytes at most: write longer texts as literals, \"...\"");
    }
    Token tokens[2];
    if (llama_tokenize(vocab_, text.data(), static_cast<std::int32_t>(text.size()), tokens, 2, false, true) != 1) {
      fail("'" + std::string(text) + "' is not one token of this model");
    }
    return static_cast<std::uint32_t>(tokens[0]);
  }

  std::uint64_t read_count(std::uint64_t most) {
    if (!is_digit(peek())) fail("a number is expected here");
    std::uint64_t value = 0;
    while (is_digit(peek())) {
      value = value * 10 + static_cast<std::uint64_t>(peek() - '0');
      if (value > most) fail("the number is larger than " + std::to_string(most));
      ++position_;
    }
    return value;
  }

  void read_rule() {
    const std::uint32_t rule = rule_named(read_name());
    skip_space(false);
    if (text_.substr(position_, 3) != "::=") fail("'::=' is expected here");
    position_ += 3;
    skip_space(true);
    read_alternates(rule, 0);
    if (!at_end() && peek() != '\r' && peek() != '\n') fail("the end of the line is expected here");
    skip_space(true);
  }

  void read_alternates(std::uint32_t rule, int depth) {
    if (depth > kMostNested) fail("groups are nested deeper than " + std::to_string(kMostNested));
    std::vector<Sequence> alternates{read_sequence(depth)};
    while (peek() == '|') {
      ++position_;
      skip_space(true);
      alternates.push_back(read_sequence(depth));
    }
    count_symbols(alternates.size());                 // the kEnd of each
    rules_[rule].alternates = std::move(alternates);  // the last definition counts, as in libllama
    rules_[rule].is_defined = true;
  }

  Sequence read_sequence(int depth) {
    Sequence sequence;
    std::size_t item = 0;  // where the last item begins in it
    while (!at_end()) {
      const char c = peek();
      if (c == '*' || c == '+' || c == '?' || c == '{') {
        if (item == sequence.size()) fail("there is nothing to repeat before this");
        repeat(sequence, item, depth > 0);
        skip_space(depth > 0);
        continue;
      }
      const std::size_t begin = sequence.size();
      if (c == '"') {
        ++position_;
        while (peek() != '"') sequence.push_back({Grammar::Kind::kCharacter, read_character()});
        ++position_;
      } else if (c == '[') {
        ++position_;
        read_class(sequence);
      } else if (c == '<' || c == '!') {
        if (c == '!') ++position_;
        sequence.push_back({c == '!' ? Grammar::Kind::kOtherToken : Grammar::Kind::kToken, read_token()});
      } else if (is_word(c)) {
        sequence.push_back({Grammar::Kind::kRule, rule_named(read_name())});
      } else if (c == '(') {
        ++position_;
        skip_space(true);
        const std::uint32_t group = add_rule();
        read_alternates(group, depth + 1);
        if (peek() != ')') fail("')' is expected here");
        ++position_;
        sequence.push_back({Grammar::Kind::kRule, group});
      } else if (c == '.') {
        ++position_;
        sequence.push_back({Grammar::Kind::kClass, static_cast<std::uint32_t>(grammar_.classes.size())});
        grammar_.classes.push_back({.is_negated = true});
      } else {
        break;
      }
      count_symbols(sequence.size() - begin);
      item = begin;
      skip_space(depth > 0);
    }
    return sequence;
  }

  // Reads a repetition operator and applies it to the item from `item` to the end of `sequence`; a further operator
  // applies to the result. A repetition without a count becomes a rule: x? becomes s ::= x |, and x* becomes s ::= x s
  // |.
  void repeat(Sequence& sequence, std::size_t item, bool newline_too) {
    const auto [least, most] = read_repetition(newline_too);
    if (least == 1 && most == 1) return;
    Sequence repeated(sequence.begin() + static_cast<std::ptrdiff_t>(item), sequence.end());
    sequence.resize(item);
    if (most == 0) return;
    count_symbols(4);
    if (least == 0 && (most == 1 || most == Grammar::kUnbounded)) {
      const std::uint32_t rule = add_rule();
      if (most == Grammar::kUnbounded) repeated.push_back({Grammar::Kind::kRule, rule});
      rules_[rule] = {.alternates = {std::move(repeated), {}}, .is_defined = true};
      sequence.push_back({Grammar::Kind::kRule, rule});
      return;
    }
    Grammar::Repeat counted{.least = least, .most = most};
    if (repeated.size() == 1 && repeated[0].kind == Grammar::Kind::kRule) {
      counted.rule = repeated[0].value;
    } else {
      counted.rule = add_rule();
      rules_[counted.rule] = {.alternates = {std::move(repeated)}, .is_defined = true};
    }
    sequence.push_back({Grammar::Kind::kRepeat, static_cast<std::uint32_t>(grammar_.repeats.size())});
    grammar_.repeats.push_back(counted);
  }

  std::pair<std::uint32_t, std::uint32_t> read_repetition(bool newline_too) {
    const char c = peek();
    ++position_;
    if (c == '*') return {0, Grammar::kUnbounded};
    if (c == '+') return {1, Grammar::kUnbounded};
    if (c == '?') return {0, 1};
    skip_space(newline_too);
    const auto least = static_cast<std::uint32_t>(read_count(kMostRepetitions));
    std::uint32_t most = least;
    skip_space(newline_too);
    if (peek() == ',') {
      ++position_;
      skip_space(newline_too);
      most = is_digit(peek()) ? static_cast<std::uint32_t>(read_count(kMostRepetitions)) : Grammar::kUnbounded;
      if (most < least) fail("the upper bound of the repetition is below the lower one");
      skip_space(newline_too);
    }
    if (peek() != '}') fail("'}' is expected here");
    ++position_;
    return {least, most};
  }

  std::string_view text_;
  const llama_vocab* vocab_;
  GrammarLimits limits_;
  std::size_t position_ = 0;  // in text_
  std::map<std::string, std::uint32_t, std::less<>> ids_;
  std::vector<Rule> rules_;
  Grammar grammar_;
  std::uint64_t n_rules_ = 0, n_symbols_ = 0;
};

}  // namespace

bool Grammar::CharacterClass::meets(std::uint32_t first, std::uint32_t last) const {
  const auto behind = std::upper_bound(ranges.begin(), ranges.end(), last,
                                       [](std::uint32_t value, const Range& range) { return value < range.first; });
  const bool is_met = behind != ranges.begin() && std::prev(behind)->last >= first;
  if (!is_negated) return is_met;
  return !is_met || std::prev(behind)->first > first || std::prev(behind)->last < last;
}

bool Grammar::CharacterClass::contains(std::uint32_t code_point) const { return meets(code_point, code_point); }

Grammar parse_grammar(std::string_view text, const llama_vocab* vocab, const GrammarLimits& limits) {
  Grammar grammar = Parser(text, vocab, limits).run();
  if (is_left_recursive(grammar)) {
    refuse("the grammar is left-recursive: put a character before a rule's use of itself");
  }
  return grammar;
}

}  // namespace winnow
