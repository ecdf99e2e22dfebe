// The places where a tokenizer of byte pairs certainly begins a new word, by the name of its pre-tokenizer
// ("tokenizer.ggml.pre"). libllama splits most kinds of words with std::regex, which recurses once a character, so that
// some 26,000 letters, dots or spaces in a row exhaust a thread's stack. It therefore gets texts in pieces that are
// short enough. In white space of more than 8,000 characters tokens may be other ones: one kind (jais-2) cuts it into
// blocks of 512, and many take it up to its last line's end for one word, which a window may not see.
#pragma once

#include <cstddef>
#include <string_view>

namespace winnow {

// The rules of one pre-tokenizer.
class WordBreaks {
 public:
  // `window_bytes`: the most bytes of a text that libllama gets at a time, in the middle of a long word.
  WordBreaks(std::string_view kind, std::size_t window_bytes);

  // Returns true if the depth of libllama's calls grows with the words. If it does not, texts stay in one piece.
  bool recurse() const { return recurse_; }

  // Returns true if groups of three digits begin again where ASCII's digits follow others of Unicode's.
  bool groups_ascii_alone() const { return groups_ascii_alone_; }

  // The rest of the long number that was met last has `n_digits` characters in the bytes [begin, end).
  struct Number {
    std::size_t begin = 0, end = 0, n_digits = 0;
  };

  // Returns the last place in (begin, end) where a word begins whatever comes before and after it, or `begin` if there
  // is none. `number` is empty in the first call for a text, and what the call before left in it in later ones.
  std::size_t last(std::string_view text, std::size_t begin, std::size_t end, Number& number) const;

  // Returns the bytes of the digit (a number of Unicode's) that a text begins with, or 0 if it begins with none.
  static std::size_t digit_bytes(std::string_view text);

  // Returns true if a special token of this text could extend over such a place.
  static bool may_be_in(std::string_view special);

 private:
  std::size_t in_long_number(std::string_view text, std::size_t begin, std::size_t end, Number& number) const;

  const std::size_t most_digits_;  // of a number that libllama gets whole
  bool recurse_ = true;
  bool at_spaces_ = true;            // a word begins before a space between letters
  bool at_lines_ = true;             // a word begins after the end of a line, before a letter
  bool after_spaces_ = false;        // also if white space comes before the line's end
  bool groups_ascii_alone_ = false;  // groups of three digits begin again where ASCII's follow others
  bool groups_from_end_ = false;     // numbers are cut into groups of three digits, counted from the last digit
  bool knows_all_digits_ = true;     // Unicode's numbers count as digits, not ASCII's only
};

}  // namespace winnow
