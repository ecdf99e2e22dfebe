// llama-server's "n_indent", for editors that complete a block: an answer ends before the first line, other than its
// very first, that is indented less.
#pragma once

#include <cstddef>
#include <string>

namespace winnow::server {

// The indent limit of one answer. Not thread-safe.
class IndentLimit {
 public:
  // n_indent: the fewest spaces and tabs that a line begins with; 0: any.
  explicit IndentLimit(int n_indent) : n_indent_(n_indent) {}

  // Takes the next piece of the answer's text and cuts off what lies beyond the limit. Returns whether the answer has
  // ended; later pieces are cut as a whole.
  bool cut(std::string& text);

 private:
  int n_indent_;
  bool is_in_indent_ = false;  // at the beginning of a line other than the first
  int n_spaces_ = 0;           // of this indent
  bool has_ended_ = false;
};

}  // namespace winnow::server
