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

inline constexpr int kInterruptedExitCode = 130;  // 128 + SIGINT, as shells have it

}  // namespace winnow::cli
