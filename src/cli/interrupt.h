// Turns Ctrl-C into a request to stop.
#pragma once

namespace winnow::cli {

// While one exists, Ctrl-C only sets a flag (and ends a blocking read); the `n_to_end`th one since the last rearm kills
// the process as usual. A process may have one at a time.
class Interrupt {
 public:
  explicit Interrupt(int n_to_end = 2);
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  bool requested() const;
  // Forgets a request: the next Ctrl-C is the first one again.
  void rearm();
};

// Makes SIGINT, and the SIGTERM with which a launcher passes it on, end the process with kInterruptedExitCode; rank 0
// prints a message. This is for ranks, which cannot stop in the middle of work that others take part in. Files are
// written completely or not at all.
void end_on_signals();

inline constexpr int kInterruptedExitCode = 130;  // 128 + SIGINT, as in shells

}  // namespace winnow::cli
