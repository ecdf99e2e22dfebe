// Texts that several conditions hold for at once, as a deterministic automaton: patterns with look-ahead, without what
// other patterns match, of a length.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "schema/grammar_rules.h"
#include "schema/number_pattern.h"
#include "schema/pattern.h"

namespace winnow {

// What texts have to be.
struct TextConditions {
  std::vector<Pattern> matched;                         // each is found in the text
  std::vector<Pattern> unmatched;                       // none of them is
  std::vector<Step> steps;                              // of a number without exponent: what it is a multiple of
  std::uint32_t least = 0, most = Pattern::kUnbounded;  // characters
};

// What automata may come to.
struct AutomatonLimits {
  std::size_t n_states = 20'000;  // of one
  std::size_t n_steps = 1'500'000;
  std::size_t n_left = 10'000'000;  // steps of all that have these limits, taken off by each
};

class TextAutomaton {
 public:
  // `form`: characters that cannot stand there occur in none of its texts. Throws Error(kInvalidArgument) where it
  // would be too large.
  TextAutomaton(const TextConditions& conditions, TextForm form, AutomatonLimits& limits);

  bool is_empty() const { return states_.empty(); }  // no text fits
  bool matches(std::string_view text) const;         // UTF-8
  // An expression for the texts, which must not be none.
  std::string grammar(GrammarRules& rules) const;

  std::size_t n_states() const { return states_.size(); }

 private:
  static constexpr std::uint32_t kNone = UINT32_MAX;
  struct State {
    bool is_end = false;              // a text may end here
    std::vector<std::uint32_t> next;  // [classes]: a state, or kNone
  };

  void drop_dead_ends();
  void merge_alike();

  TextForm form_;
  std::vector<CharacterSet> classes_;  // of characters that no condition tells apart
  std::vector<State> states_;          // the first is where texts begin
};

}  // namespace winnow
