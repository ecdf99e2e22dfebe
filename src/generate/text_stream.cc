#include <algorithm>
#include <utility>

#include "base/utf8.h"
#include "winnow/error.h"
#include "winnow/generate.h"

namespace winnow {

TextStream::TextStream(std::vector<std::string> stops) : stops_(std::move(stops)) {
  const auto is_empty = [](const std::string& stop) { return stop.empty(); };
  if (std::any_of(stops_.begin(), stops_.end(), is_empty)) {
    throw Error(ErrorCode::kInvalidArgument, "a stop text is empty: leave it out");
  }
}

std::size_t TextStream::held_back() const {
  std::size_t n = incomplete_tail(held_);
  for (const std::string& stop : stops_) {
    for (std::size_t k = std::min(stop.size() - 1, held_.size()); k > n; --k) {
      if (held_.compare(held_.size() - k, k, stop, 0, k) == 0) n = k;
    }
  }
  return n;
}

std::string TextStream::add(std::string_view bytes) {
  if (is_stopped_) return "";
  held_ += bytes;
  std::size_t end = std::string::npos;
  for (const std::string& stop : stops_) {
    const std::size_t begin = held_.find(stop);
    if (begin >= end) continue;
    end = begin;
    stop_ = stop;
  }
  is_stopped_ = end != std::string::npos;
  const std::size_t n = is_stopped_ ? end : held_.size() - held_back();
  std::string shown = valid_utf8(std::string_view(held_).substr(0, n));
  held_.erase(0, is_stopped_ ? held_.size() : n);
  return shown;
}

std::string TextStream::finish() {
  std::string shown = valid_utf8(held_);
  held_.clear();
  return shown;
}

}  // namespace winnow
