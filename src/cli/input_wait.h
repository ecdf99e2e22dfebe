// Waits for typed input; Ctrl-C ends the wait.
#pragma once

#include <poll.h>
#include <unistd.h>

#include "cli/interrupt.h"

namespace winnow::cli {

// Waits until the standard input can be read or is at its end. Returns false if Ctrl-C came first. It checks ten times
// a second, because a signal between a check and a blocking read would not end that read.
inline bool wait_for_input(const Interrupt& interrupt) {
  constexpr int kLookMs = 100;
  pollfd input{STDIN_FILENO, POLLIN, 0};
  while (!interrupt.requested()) {
    if (poll(&input, 1, kLookMs) > 0) return true;
  }
  return false;
}

}  // namespace winnow::cli
