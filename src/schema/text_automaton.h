// A deterministic automaton of the texts that meet several conditions at once: patterns with look-ahead, patterns that
// must not match, and a length.
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

// The conditions that a text has to meet.
struct TextConditions {
  std::vector<Pattern> matched;                         // each is found in the text
  std::vector<Pattern> unmatched;                       // none of them is found in it
  std::vector<Step> steps;                              // it is a number without exponent and a multiple of each
  std::uint32_t least = 0, most = Pattern::kUnbounded;  // characters
};

// The limits on the sizes of automata.
struct AutomatonLimits {
  std::size_t n_states = 20'000;  // of one automaton
  std::size_t n_steps = 1'500'000;
  std::size_t n_left = 10'000'000;  // steps left to all automata that share these limits; each takes its own
};

class TextAutomaton {
 public:
  // Builds the automaton. Its texts have only characters that can stand in the `form`. Throws Error(kInvalidArgument)
  // if it would be too large.
  TextAutomaton(const TextConditions& conditions, TextForm form, AutomatonLimits& limits);

  bool is_empty() const { return states_.empty(); }  // no text fits
  bool matches(std::string_view text) const;         // UTF-8
  // Returns an expression for the texts. There must be at least one.
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
  std::vector<CharacterSet> classes_;  // of characters that no condition distinguishes
  std::vector<State> states_;          // texts begin at the first
};

}  // namespace winnow
