#include "server/answer_text.h"

#include <algorithm>

#include "model/tokenizer.h"

namespace winnow::server {
namespace {

// Bytes at the end that are the beginning of a character whose rest may still come.
std::size_t incomplete_character(const std::string& text) {
  for (std::size_t n = 1; n <= std::min<std::size_t>(3, text.size()); ++n) {
    const auto byte = static_cast<unsigned char>(text[text.size() - n]);
    if ((byte & 0xC0) == 0x80) continue;
    const std::size_t length = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : byte >= 0xC0 ? 2 : 1;
    return length > n ? n : 0;
  }
  return 0;
}

}  // namespace

std::string valid_utf8(const std::string& bytes) {
  std::string text;
  std::string_view rest = bytes;
  while (const auto bad = find_invalid_utf8(rest)) {
    text += rest.substr(0, *bad);
    text += "\xEF\xBF\xBD";
    rest.remove_prefix(*bad + 1);
  }
  return text += rest;
}

std::size_t AnswerText::held_back() const {
  std::size_t n = incomplete_character(held_);
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
