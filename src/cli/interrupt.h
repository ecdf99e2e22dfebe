// Ctrl-C as a request instead of a death.
#pragma once

namespace winnow::cli {

// While one exists Ctrl-C only sets a flag (and ends a blocking read), until there were `n_to_end` of them since the
// last rearm: that one kills the process as usual. One at a time in the process.
class Interrupt {
 public:
  explicit Interrupt(int n_to_end = 2);
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  bool requested() const;
  // Forgets a request: the next Ctrl-C is a first one again.
  void rearm();
};

// Of ranks, which cannot stop in the middle of what others take part in: SIGINT, and the SIGTERM with which a launcher
// passes it on, end the process with kInterruptedExitCode, and rank 0 says so. Files are whole or not there.
void end_on_signals();

inline constexpr int kInterruptedExitCode = 130;  // 128 + SIGINT, as shells have it

}  // namespace winnow::cli
