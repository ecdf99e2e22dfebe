// Lines from a terminal or a pipe that Ctrl-C can interrupt (std::getline cannot be).
#pragma once

#include <optional>
#include <string>

#include "cli/interrupt.h"

namespace winnow::cli {

class LineInput {
 public:
  // Without the newline; nothing at the end of the input or when interrupted.
  std::optional<std::string> next(const Interrupt& interrupt);

 private:
  std::string buffer_;
  bool ended_ = false;
};

}  // namespace winnow::cli
