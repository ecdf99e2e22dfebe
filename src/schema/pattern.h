// Regular expressions as JSON schemas have them: ECMAScript's, with some extensions of Python's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "schema/character_set.h"

namespace winnow {

struct Pattern {
  enum class Kind {
    kSet,        // one character of a set
    kSequence,   // all children, one after the other
    kChoice,     // one of the children
    kRepeat,     // the child, `least` to `most` times
    kLookAhead,  // the child follows, or does not
    kBegin,      // beginning of the text
    kEnd,
    kWordBoundary,
  };
  static constexpr std::uint32_t kUnbounded = UINT32_MAX;

  Kind kind = Kind::kSequence;
  CharacterSet set;
  std::vector<Pattern> children;
  std::uint32_t least = 0, most = 0;
  bool is_negated = false;  // of look-ahead and word boundaries

  // Parses a pattern. Throws Error(kInvalidArgument), whose text begins with "'pattern'", for what no such grammar has
  // (references to groups, look-behind, possessive repetitions, unknown properties), for what does not parse, and for
  // more than `n_most` bytes.
  static Pattern parse(std::string_view text, std::size_t n_most = 10'000);
  // Returns the pattern of exactly these characters.
  static Pattern literal(std::string_view text);

  bool is_assertion() const;
  std::size_t size() const;  // nodes, itself included
};

}  // namespace winnow
