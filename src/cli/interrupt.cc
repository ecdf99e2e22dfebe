#include "cli/interrupt.h"

#include <csignal>

#include "cli/ranks.h"

namespace winnow::cli {
namespace {

volatile std::sig_atomic_t g_requested = 0;  // how often
volatile std::sig_atomic_t g_to_end = 2;

void on_signal(int) {
  g_requested = g_requested + 1;
  if (g_requested + 1 >= g_to_end) std::signal(SIGINT, SIG_DFL);  // the next one ends the process
}

void install() {
  if (ranks() != nullptr)
    return;  // one that stops by itself would leave the others waiting: the launcher ends them all
  struct sigaction action = {};
  action.sa_handler = on_signal;
  // No SA_RESTART: waiting for a line of input must end too.
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
}

}  // namespace

Interrupt::Interrupt(int n_to_end) {
  g_to_end = n_to_end;
  rearm();
}

Interrupt::~Interrupt() { std::signal(SIGINT, SIG_DFL); }

bool Interrupt::requested() const { return g_requested != 0; }

void Interrupt::rearm() {
  g_requested = 0;
  install();
}

}  // namespace winnow::cli
