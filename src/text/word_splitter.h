// The words of a text as a pre-tokenizer splits it, in time linear in the text and without recursion.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

#include "text/pattern_matcher.h"
#include "text/word_patterns.h"

namespace winnow {

// Immutable; several threads may use it at once.
class WordSplitter {
 public:
  // Throws Error(kUnsupported) for patterns that PatternMatcher does not take.
  explicit WordSplitter(std::span<const WordRule> rules);

  // Returns where each word of a text (UTF-8) ends, in bytes, ascending; the last one is the text's size. A text
  // without a character has no words.
  std::vector<std::size_t> ends(std::string_view text) const;

 private:
  using Rule = std::variant<PatternMatcher, WordRule::Kind>;

  std::vector<Rule> rules_;
};

}  // namespace winnow
