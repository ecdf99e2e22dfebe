// llama-server's "n_indent", for editors that complete a block: an answer ends before the first line behind its first
// one that is indented less.
#pragma once

#include <cstddef>
#include <string>

namespace winnow::server {

// Not thread-safe; one per answer.
class IndentLimit {
 public:
  // n_indent: spaces and tabs that a line begins with at least; 0: any.
  explicit IndentLimit(int n_indent) : n_indent_(n_indent) {}

  // Cuts from `text`, which goes on with the answer, what does not belong to it. Whether the answer ends with it; what
  // is given after that is cut as a whole.
  bool cut(std::string& text);

 private:
  int n_indent_;
  bool is_in_indent_ = false;  // of another line than the first
  int n_spaces_ = 0;           // of it
  bool has_ended_ = false;
};

}  // namespace winnow::server
