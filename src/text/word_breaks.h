// Where a tokenizer of byte pairs certainly begins a new word, by the name of how it cuts words ("tokenizer.ggml.pre").
// libllama reads most kinds of words with std::regex, which calls itself once a character, so that some 26,000 letters,
// dots or spaces in a row take more than a thread's stack. Texts are given to it in pieces that are short enough. One
// kind (jais-2, which cuts white space into blocks of 512) may come to other blocks in more than 8,000 characters of
// it.
#pragma once

#include <cstddef>
#include <string_view>

namespace winnow {

class WordBreaks {
 public:
  explicit WordBreaks(std::string_view kind);

  // Whether the depth of libllama's calls grows with the words; where it does not, texts stay in one piece.
  bool recurse() const { return recurse_; }

  // The last place in (begin, end) where a word begins whatever stands before it and behind, or `begin`. `number_end`:
  // 0 at first, and what the call before left in it for the same text.
  std::size_t last(std::string_view text, std::size_t begin, std::size_t end, std::size_t& number_end) const;

  // Whether a special token of this text could reach over such a place.
  static bool may_be_in(std::string_view special);

 private:
  std::size_t in_long_number(std::string_view text, std::size_t begin, std::size_t end, std::size_t& number_end) const;

  bool recurse_ = true;
  bool at_spaces_ = true;         // before a space between letters
  bool at_lines_ = true;          // behind the end of a line, before a letter
  bool groups_from_end_ = false;  // of three digits, counted from the last one
};

}  // namespace winnow
