#include "model/grammar_check.h"

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
#include "model/tokenizer.h"
#include "winnow/error.h"

namespace winnow {
namespace {

[[noreturn]] void refuse(const std::string& sentence) { throw Error(ErrorCode::kInvalidArgument, sentence); }

// Reads a GBNF grammar as libllama does, only to refuse what libllama would print about, not survive or not finish: it
// reports syntax errors on stderr, never ends on {3,2}, overflows the stack on deep nesting, and misses left recursion
// through rules that may be empty. Keeps the shape of the rules, not their characters.
class GrammarCheck {
 public:
  GrammarCheck(std::string_view text, const llama_vocab* vocab) : text_(text), vocab_(vocab) {}

  // Throws Error(kInvalidArgument).
  void run() {
    if (text_.find('\0') != std::string_view::npos) refuse("the grammar holds a zero byte: remove it");
    if (const auto offset = find_invalid_utf8(text_)) {
      refuse("the grammar is not UTF-8 at byte " + std::to_string(*offset) + ": convert it");
    }
    skip_space(true);
    while (!at_end()) read_rule();
    for (const auto& [name, rule] : ids_) {
      if (!rules_[rule].defined) refuse("the grammar uses the rule '" + name + "' and does not define it");
    }
    if (!ids_.contains("root")) refuse("the grammar has no rule named 'root': name the one to start with so");
    refuse_left_recursion();
  }

 private:
  // libllama's own limit of repetitions, and ours of what a grammar may expand to (its recursion is one frame a rule).
  static constexpr std::uint64_t kMostRepetitions = 2000;
  static constexpr std::uint64_t kMostRules = 10'000;
  static constexpr std::uint64_t kMostElements = 1'000'000;
  static constexpr std::uint64_t kMostPaths = 1'000'000;
  static constexpr int kMostNested = 200;
  static constexpr std::uint64_t kUnbounded = std::numeric_limits<std::uint64_t>::max();

  // One part of a sequence: characters or a token (rule < 0), or a rule; `times` copies of it can be on its left edge.
  struct Item {
    int rule = -1;
    bool may_be_empty = false;
    std::uint64_t times = 1;
  };
  using Sequence = std::vector<Item>;
  struct Rule {
    std::vector<Sequence> alternates;
    bool defined = false;
    bool may_be_empty = false;
    enum { kNew, kInProgress, kDone } state = kNew;
    std::uint64_t n_paths = 0;  // that libllama's search for left recursion walks below this rule
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

  int rule_named(std::string_view name) {
    const auto [entry, is_new] = ids_.try_emplace(std::string(name), static_cast<int>(rules_.size()));
    if (is_new) add_rule();
    return entry->second;
  }

  int add_rule() {
    count_rules(1);
    rules_.emplace_back();
    return static_cast<int>(rules_.size()) - 1;
  }

  void count_rules(std::uint64_t n) {
    n_rules_ += n;
    if (n_rules_ > kMostRules)
      fail("more than " + std::to_string(kMostRules) + " rules, repetitions included: simplify it");
  }

  void count_elements(std::uint64_t n) {
    n_elements_ += n;
    if (n_elements_ > kMostElements) fail("the repetitions expand to too much: lower their counts");
  }

  void read_character() {
    if (at_end()) fail("the grammar ends inside a literal or character class");
    if (peek() != '\\') {
      ++position_;
      while (!at_end() && continues_character(peek())) ++position_;
      return;
    }
    const char escape = peek(1);
    const int n_hex = escape == 'x' ? 2 : escape == 'u' ? 4 : escape == 'U' ? 8 : 0;
    if (n_hex == 0 && (escape == '\0' || std::string_view("trn\\\"[]-").find(escape) == std::string_view::npos)) {
      fail("unknown escape; known are \\x \\u \\U \\t \\r \\n \\\\ \\\" \\[ \\] \\-");
    }
    position_ += 2;
    for (int i = 0; i < n_hex; ++i, ++position_) {
      const char c = peek();
      if (!is_digit(c) && !(c >= 'a' && c <= 'f') && !(c >= 'A' && c <= 'F')) {
        fail("the escape needs " + std::to_string(n_hex) + " hexadecimal digits");
      }
    }
  }

  // <[id]> or <text of one token>.
  void read_token() {
    const std::size_t begin = position_;
    if (peek() != '<') fail("'<' is expected here");
    if (peek(1) == '[') {
      position_ += 2;
      read_count(std::numeric_limits<std::uint32_t>::max());
      if (peek() != ']' || peek(1) != '>') fail("']>' is expected here");
      position_ += 2;
      return;
    }
    while (!at_end() && peek() != '>') ++position_;
    if (at_end()) fail("'>' is expected after a token");
    ++position_;
    const std::string_view text = text_.substr(begin, position_ - begin);
    Token tokens[2];
    if (llama_tokenize(vocab_, text.data(), static_cast<std::int32_t>(text.size()), tokens, 2, false, true) != 1) {
      fail("'" + std::string(text) + "' is not one token of this model");
    }
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
    const int rule = rule_named(read_name());
    skip_space(false);
    if (text_.substr(position_, 3) != "::=") fail("'::=' is expected here");
    position_ += 3;
    skip_space(true);
    read_alternates(rule, 0);
    if (!at_end() && peek() != '\r' && peek() != '\n') fail("the end of the line is expected here");
    skip_space(true);
  }

  void read_alternates(int rule, int depth) {
    if (depth > kMostNested) fail("groups are nested deeper than " + std::to_string(kMostNested));
    std::vector<Sequence> alternates{read_sequence(depth)};
    while (peek() == '|') {
      ++position_;
      skip_space(true);
      alternates.push_back(read_sequence(depth));
    }
    rules_[rule].alternates = std::move(alternates);  // the last definition counts, as in libllama
    rules_[rule].defined = true;
  }

  Sequence read_sequence(int depth) {
    Sequence sequence;
    std::uint64_t n_item_elements = 0;  // of the last item, repetitions included
    std::uint64_t n_item_rules = 1;     // libllama's measure of the last item's weight
    const auto add_item = [&](int rule, std::uint64_t n_elements, std::uint64_t n_rules = 1) {
      sequence.push_back({.rule = rule, .may_be_empty = rule < 0 && n_elements == 0});
      n_item_elements = n_elements;
      n_item_rules = n_rules;
      count_elements(n_elements);
    };
    while (!at_end()) {
      const char c = peek();
      if (c == '"' || c == '[') {
        const char close = c == '[' ? ']' : '"';
        ++position_;
        if (c == '[' && peek() == '^') ++position_;
        std::uint64_t n = 0;
        for (; peek() != close; ++n) read_character();  // a range counts its '-' too
        ++position_;
        add_item(-1, n);
      } else if (c == '<' || c == '!') {
        if (c == '!') ++position_;
        read_token();
        add_item(-1, 1);
      } else if (is_word(c)) {
        add_item(rule_named(read_name()), 1);
      } else if (c == '(') {
        ++position_;
        skip_space(true);
        const std::uint64_t n_rules_before = n_rules_;
        const int group = add_rule();
        read_alternates(group, depth + 1);
        if (peek() != ')') fail("')' is expected here");
        ++position_;
        add_item(group, 1, n_rules_ - n_rules_before);
      } else if (c == '.') {
        ++position_;
        add_item(-1, 1);
      } else if (c == '*' || c == '+' || c == '?' || c == '{') {
        if (sequence.empty() || n_item_elements == 0) fail("there is nothing to repeat before this");
        const auto [least, most] = read_repetition(depth > 0);
        const std::uint64_t n_copies = most != kUnbounded && most > 0 ? most : std::max<std::uint64_t>(least, 1);
        n_item_rules *= n_copies;
        if (n_item_rules > kMostRepetitions) {
          fail("repeats more than " + std::to_string(kMostRepetitions) +
               " times, inner groups included: lower the counts");
        }
        const std::uint64_t n_optional = most == kUnbounded ? 1 : most - least;
        count_rules(n_optional);
        count_elements(n_item_elements * (least + n_optional) + 3 * n_optional);
        n_item_elements = n_item_elements * least + (n_optional > 0 ? 1 : 0);
        sequence.back().may_be_empty |= least == 0;
        sequence.back().times *= n_copies;
      } else {
        break;
      }
      skip_space(depth > 0);
    }
    return sequence;
  }

  std::pair<std::uint64_t, std::uint64_t> read_repetition(bool newline_too) {
    const char c = peek();
    ++position_;
    if (c == '*') return {0, kUnbounded};
    if (c == '+') return {1, kUnbounded};
    if (c == '?') return {0, 1};
    skip_space(newline_too);
    const std::uint64_t least = read_count(kMostRepetitions);
    std::uint64_t most = least;
    skip_space(newline_too);
    if (peek() == ',') {
      ++position_;
      skip_space(newline_too);
      most = is_digit(peek()) ? read_count(std::numeric_limits<std::uint32_t>::max()) : kUnbounded;
      if (most < least) fail("the upper bound of the repetition is below the lower one");
      if (most > kMostRepetitions) most = kUnbounded;
      skip_space(newline_too);
    }
    if (peek() != '}') fail("'}' is expected here");
    ++position_;
    return {least, most};
  }

  bool may_be_empty(const Item& item) const {
    return item.may_be_empty || (item.rule >= 0 && rules_[item.rule].may_be_empty);
  }

  void refuse_left_recursion() {
    for (bool changed = true; changed;) {
      changed = false;
      for (Rule& rule : rules_) {
        const bool empty = std::any_of(rule.alternates.begin(), rule.alternates.end(), [&](const Sequence& sequence) {
          return std::all_of(sequence.begin(), sequence.end(), [&](const Item& item) { return may_be_empty(item); });
        });
        changed |= empty != rule.may_be_empty;
        rule.may_be_empty = empty;
      }
    }
    for (const auto& [name, rule] : ids_) walk_left_edge(rule, name);
  }

  void walk_left_edge(int index, const std::string& from) {
    Rule& rule = rules_[index];
    if (rule.state == Rule::kDone) return;
    if (rule.state == Rule::kInProgress) {
      refuse("the grammar is left-recursive at or below the rule '" + from +
             "': put a character before the rule's use of itself");
    }
    rule.state = Rule::kInProgress;
    rule.n_paths = 1;
    for (const Sequence& sequence : rule.alternates) {
      for (const Item& item : sequence) {
        if (item.rule >= 0) {
          walk_left_edge(item.rule, from);
          rule.n_paths += item.times * (1 + rules_[item.rule].n_paths);
        }
        if (rule.n_paths > kMostPaths) {
          refuse("the grammar is too ambiguous at or below the rule '" + from +
                 "': remove alternatives that begin alike");
        }
        if (!may_be_empty(item)) break;
      }
    }
    rule.state = Rule::kDone;
  }

  std::string_view text_;
  const llama_vocab* vocab_;
  std::size_t position_ = 0;  // in text_
  std::map<std::string, int> ids_;
  std::vector<Rule> rules_;
  std::uint64_t n_rules_ = 0;     // as libllama will count them
  std::uint64_t n_elements_ = 0;  // likewise, 8 bytes each
};

}  // namespace

void check_grammar(std::string_view text, const llama_vocab* vocab) { GrammarCheck(text, vocab).run(); }

}  // namespace winnow
