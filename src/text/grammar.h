// GBNF grammars in the form in which they are matched.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

struct llama_vocab;

namespace winnow {

// A parsed grammar.
struct Grammar {
  enum class Kind : std::uint8_t {
    kEnd,         // the end of a sequence
    kRule,        // value: its index in `rules`
    kRepeat,      // value: its index in `repeats`
    kCharacter,   // value: the code point
    kClass,       // value: its index in `classes`
    kToken,       // value: a token, to be matched as a whole
    kOtherToken,  // value: a token; any other one matches
  };
  struct Symbol {
    Kind kind = Kind::kEnd;
    std::uint32_t value = 0;
  };
  struct Range {
    std::uint32_t first = 0, last = 0;  // code points, both included
  };
  struct CharacterClass {
    std::vector<Range> ranges;  // ascending, with gaps between them
    bool is_negated = false;

    bool contains(std::uint32_t code_point) const;
    // Returns true if any of the code points `first` to `last` is in the class.
    bool meets(std::uint32_t first, std::uint32_t last) const;
  };

  // A rule that is repeated. Repetitions are counted while they are matched, so that large counts take no memory.
  struct Repeat {
    std::uint32_t rule = 0;
    std::uint32_t least = 0, most = 0;  // numbers of repetitions; kUnbounded: any number
    bool is_empty = false;              // true: the empty text matches the rule

    bool operator==(const Repeat&) const = default;
  };
  static constexpr std::uint32_t kUnbounded = UINT32_MAX;

  std::vector<Symbol> symbols;  // all sequences, one after the other, each with its kEnd
  std::vector<std::vector<std::uint32_t>>
      rules;  // [n_rules] for each alternative of a rule, the index in `symbols` at which its sequence begins
  std::vector<CharacterClass> classes;
  std::vector<Repeat> repeats;
  std::uint32_t root = 0;  // index of the root rule
};

// The most rules and symbols of a grammar.
struct GrammarLimits {
  std::uint64_t n_rules = 100'000, n_symbols = 1'000'000;
};

// Returns the grammar of a GBNF text of at most 4 MiB. `vocab` is needed for tokens that the grammar names. Throws
// Error(kInvalidArgument) with line, byte and fault for a text that is not valid, beyond the limits, or left-recursive.
Grammar parse_grammar(std::string_view text, const llama_vocab* vocab, const GrammarLimits& limits = {});

}  // namespace winnow
