#include "server/answer_text.h"

#include <algorithm>

#include "base/utf8.h"

namespace winnow::server {
std::size_t AnswerText::held_back() const {
  std::size_t n = incomplete_tail(held_);
  for (const std::string& stop : stops_) {
    for (std::size_t k = std::min(stop.size() - 1, held_.size()); k > n; --k) {
      if (held_.compare(held_.size() - k, k, stop, 0, k) == 0) n = k;
    }
  }
  return n;
}

std::string AnswerText::add(const std::string& bytes) {
  if (is_stopped_) return "";
  held_ += bytes;
  std::size_t end = std::string::npos;
  for (const std::string& stop : stops_) end = std::min(end, held_.find(stop));
  if (end != std::string::npos) {
    is_stopped_ = true;
    const std::string shown = valid_utf8(held_.substr(0, end));
    held_.clear();
    return shown;
  }
  const std::size_t n = held_.size() - held_back();
  std::string shown = valid_utf8(held_.substr(0, n));
  held_.erase(0, n);
  return shown;
}

std::string AnswerText::finish() {
  std::string shown = valid_utf8(held_);
  held_.clear();
  return shown;
}

}  // namespace winnow::server
