// Waiting for typed input that Ctrl-C ends.
#pragma once

#include <poll.h>
#include <unistd.h>

#include "cli/interrupt.h"

namespace winnow::cli {

// Until the standard input can be read, or is at its end. False: Ctrl-C came first. It looks ten times a second: a
// signal between a look and a read that waits would not end that read.
inline bool wait_for_input(const Interrupt& interrupt) {
  constexpr int kLookMs = 100;
  pollfd input{STDIN_FILENO, POLLIN, 0};
  while (!interrupt.requested()) {
    if (poll(&input, 1, kLookMs) > 0) return true;
  }
  return false;
}

}  // namespace winnow::cli
