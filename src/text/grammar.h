// GBNF grammars: rules as they are matched.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

struct llama_vocab;

namespace winnow {

struct Grammar {
  enum class Kind : std::uint8_t {
    kEnd,         // of a sequence
    kRule,        // value: its index in `rules`
    kRepeat,      // value: its index in `repeats`
    kCharacter,   // value: the code point
    kClass,       // value: its index in `classes`
    kToken,       // value: the token, whole
    kOtherToken,  // value: the token that it must not be
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
    // Whether any of the code points `first` to `last` is in it.
    bool meets(std::uint32_t first, std::uint32_t last) const;
  };

  // A rule several times. It is counted where it is matched, so that large counts take no room.
  struct Repeat {
    std::uint32_t rule = 0;
    std::uint32_t least = 0, most = 0;  // most: kUnbounded for any number
    bool is_empty = false;              // the empty text matches the rule

    bool operator==(const Repeat&) const = default;
  };
  static constexpr std::uint32_t kUnbounded = UINT32_MAX;

  std::vector<Symbol> symbols;  // sequences one behind the other, each with its kEnd
  std::vector<std::vector<std::uint32_t>>
      rules;  // [n_rules]: where the sequences that a rule may be begin in `symbols`
  std::vector<CharacterClass> classes;
  std::vector<Repeat> repeats;
  std::uint32_t root = 0;  // a rule
};

// What a grammar may come to.
struct GrammarLimits {
  std::uint64_t n_rules = 100'000, n_symbols = 1'000'000;
};

// Texts are bounded to 4 MiB. Left recursion is refused. Throws Error(kInvalidArgument) that says where (line and byte)
// and what is wrong. `vocab`: for tokens that the grammar names.
Grammar parse_grammar(std::string_view text, const llama_vocab* vocab, const GrammarLimits& limits = {});

}  // namespace winnow
