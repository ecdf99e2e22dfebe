#include "cli/interrupt.h"

#include <unistd.h>

#include <csignal>

#include "cli/ranks.h"

namespace winnow::cli {
namespace {

volatile std::sig_atomic_t g_requested = 0;  // number of requests
volatile std::sig_atomic_t g_to_end = 2;

void on_signal(int) {
  g_requested = g_requested + 1;
  if (g_requested + 1 >= g_to_end) std::signal(SIGINT, SIG_DFL);  // the next one ends the process
}

bool g_says_end = false;

void on_end(int) {
  constexpr char kText[] = "interrupted\n";
  if (g_says_end && write(STDERR_FILENO, kText, sizeof(kText) - 1) < 0) _exit(1);
  _exit(kInterruptedExitCode);
}

void install() {
  if (ranks() != nullptr) return;  // see end_on_signals
  struct sigaction action = {};
  action.sa_handler = on_signal;
  // Without SA_RESTART, since waiting for a line of input must end, too.
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
}

}  // namespace

void end_on_signals() {
  g_says_end = speaks();
  std::signal(SIGINT, on_end);
  std::signal(SIGTERM, on_end);
}

Interrupt::Interrupt(int n_to_end) {
  g_to_end = n_to_end;
  rearm();
}

Interrupt::~Interrupt() {
  if (ranks() == nullptr) std::signal(SIGINT, SIG_DFL);
}

bool Interrupt::requested() const { return g_requested != 0; }

void Interrupt::rearm() {
  g_requested = 0;
  install();
}

}  // namespace winnow::cli
