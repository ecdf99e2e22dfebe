// Lines of a conversation, from a pipe or a terminal.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "cli/interrupt.h"

namespace winnow::cli {

struct InputLine {
  enum class Kind { kText, kInterrupted, kEnd };
  Kind kind;
  std::string text = {};  // kText: without the end of the line
  bool had_text = false;  // kInterrupted: something was typed, and is discarded
};

class LineSource {
 public:
  virtual ~LineSource() = default;
  // Waits for a line; Ctrl-C ends the wait. `prompt` is shown on a terminal. Throws Error(kIo).
  virtual InputLine next(const std::string& prompt, const Interrupt& interrupt) = 0;
};

// Returns a source that reads lines as they come (std::getline cannot be interrupted). Its next() throws
// Error(kInvalidArgument) for a line of more than `most_bytes`. Prompts are shown on the standard error if
// `shows_prompts`.
std::unique_ptr<LineSource> make_line_reader(bool shows_prompts, std::size_t most_bytes);

}  // namespace winnow::cli
