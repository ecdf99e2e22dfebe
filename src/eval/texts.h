// Running text: the books that needles are hidden in and that fidelity is measured on.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "eval/sample.h"

namespace winnow::eval {

struct Book {
  std::string name;  // of the file, without its ending
  std::string text;
};

// options.haystack: a file, or a folder's *.txt by name; the books that ship if it is empty. A *.jsonl is read as
// NeedleBench's haystacks are: the field "text" of every line. Throws Error(kNotFound, kBadFile).
std::vector<Book> books(const SampleOptions& options);
// All of them, an empty line between two.
std::string joined_books(const SampleOptions& options);

// The lines of a file of words, without empty ones and repetitions.
std::vector<std::string> distinct_lines(std::string_view text);

// Sentences end at ". ", "! " and "? " with their closing quotes, but not behind an abbreviation or a single capital
// (RULER itself uses NLTK's punkt). White space between them is dropped.
std::vector<std::string> sentences_of(std::string_view text);

// A text in tokens, as texts that joined are the text again.
class TokenText {
 public:
  // Throws Error(kInvalidArgument) if options have no tokenizer. Only the first n_tokens or more are made if it is not
  // 0: the text is repeated should it be shorter.
  TokenText(const SampleOptions& options, std::string_view text, std::size_t n_tokens = 0);

  std::size_t size() const { return tokens_.size(); }
  const std::string& operator[](std::size_t i) const { return tokens_[i]; }
  // Tokens [begin, end), without characters that the borders cut.
  std::string text(std::size_t begin, std::size_t end) const;
  // The first position from i on where a word or line begins.
  std::size_t word_from(std::size_t i) const;

 private:
  std::vector<std::string> tokens_;
};

std::int32_t count_tokens(const SampleOptions& options, std::string_view text);

}  // namespace winnow::eval
