#include "server/indent_limit.h"

namespace winnow::server {

bool IndentLimit::cut(std::string& text) {
  if (n_indent_ <= 0) return false;
  std::size_t i = 0;
  for (; i < text.size() && !has_ended_; ++i) {
    const bool is_space = text[i] == ' ' || text[i] == '\t';
    if (is_in_indent_ && is_space) ++n_spaces_;
    if (is_in_indent_ && !is_space) {
      // An empty line ends the answer, too, as in llama-server.
      if (n_spaces_ < n_indent_) break;
      is_in_indent_ = false;
    }
    if (text[i] == '\n') {
      is_in_indent_ = true;
      n_spaces_ = 0;
    }
  }
  has_ended_ = has_ended_ || i < text.size();
  text.resize(i);
  return has_ended_;
}

}  // namespace winnow::server
