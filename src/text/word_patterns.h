// The rules by which pre-tokenizers ("tokenizer.ggml.pre") split a text into words, for those kinds whose words
// libllama finds with std::regex. That recurses once a character, so that some 26,000 letters, dots or spaces in a row
// exhaust a thread's stack.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace winnow {

// One of the rules of a kind. Each splits the words that the rules before it leave; the first one splits the text.
struct WordRule {
  enum class Kind {
    kPattern,              // each match of the pattern is a word, and so is what lies between two
    kThreesOfAllDigits,    // words end in numbers, where a multiple of three digits is left, 0 included
    kThreesOfAsciiDigits,  // words begin in numbers of ASCII's digits, where a multiple of three digits is left
  };

  Kind kind = Kind::kPattern;
  std::string pattern;  // an ECMAScript regular expression, with \p{L} for letters of every case
};

// Returns the rules of a kind, or none if libllama reads its words with loops of its own, or if it is not known.
std::span<const WordRule> word_rules(std::string_view kind);

// Returns true if libllama reads a kind's words with loops of its own in the place of std::regex.
bool has_loops_of_libllama(std::string_view kind);

// Returns true if a word that is a token is this token for a kind, whatever its byte pairs are merged to.
bool takes_whole_words(std::string_view kind);

}  // namespace winnow
