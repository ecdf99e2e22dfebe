// Running text: the books that needles are hidden in and that fidelity is measured on.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "eval/sample.h"

namespace winnow::eval {

struct Book {
  std::string name;  // name of the file, without its ending
  std::string text;
};

// Returns the texts of options.haystack, a file or a folder's *.txt by name; the books that ship if it is empty. Of a
// *.jsonl, as NeedleBench's haystacks are, it reads the field "text" of every line. Throws Error(kNotFound, kBadFile).
std::vector<Book> books(const SampleOptions& options);
// Returns all books, with an empty line between two.
std::string joined_books(const SampleOptions& options);

// Returns the lines of a file of words, without empty lines and repetitions.
std::vector<std::string> distinct_lines(std::string_view text);

// Splits a text into sentences, which end at ". ", "! " and "? " with their closing quotes, but not after an
// abbreviation or a single capital (RULER itself uses NLTK's punkt). White space between them is dropped.
std::vector<std::string> sentences_of(std::string_view text);

// A text split into tokens, whose byte strings concatenate to the text.
class TokenText {
 public:
  // Throws Error(kInvalidArgument) if the options have no tokenizer. If n_tokens is not 0, only the first n_tokens or
  // more are made, and a shorter text is repeated.
  TokenText(const SampleOptions& options, std::string_view text, std::size_t n_tokens = 0);

  std::size_t size() const { return tokens_.size(); }
  const std::string& operator[](std::size_t i) const { return tokens_[i]; }
  // Returns tokens [begin, end) as text, without characters that the borders cut.
  std::string text(std::size_t begin, std::size_t end) const;
  // Returns the first position from i on where a word or line begins. Chinese, Japanese and Thai have no white space
  // between words: if none comes within a word's tokens, returns the first position where a character begins.
  std::size_t word_from(std::size_t i) const;

 private:
  std::vector<std::string> tokens_;
};

std::int32_t count_tokens(const SampleOptions& options, std::string_view text);

}  // namespace winnow::eval
