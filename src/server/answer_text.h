// Tokens to text as it may be shown: whole characters only, and nothing of a stop sequence.
#pragma once

#include <string>
#include <vector>

#include "winnow/model.h"

namespace winnow::server {

// Not thread-safe; one per answer.
class AnswerText {
 public:
  explicit AnswerText(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  // Adds a token's bytes; returns the text that can be shown now. What may be the beginning of a stop sequence or is
  // half a character is held back. Nothing is shown any more once is_stopped().
  std::string add(const std::string& bytes);
  // What was held back, at the end of an answer that no stop sequence ended. Bytes that are no UTF-8 become U+FFFD.
  std::string finish();
  bool is_stopped() const { return is_stopped_; }

 private:
  // Bytes of held_ that cannot be shown yet.
  std::size_t held_back() const;

  std::vector<std::string> stops_;
  std::string held_;
  bool is_stopped_ = false;
};

}  // namespace winnow::server
