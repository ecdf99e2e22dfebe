#include "cli/interrupt.h"

#include <csignal>

namespace winnow::cli {
namespace {

volatile std::sig_atomic_t g_requested = 0;

void on_signal(int) { g_requested = 1; }

void install() {
  struct sigaction action = {};
  action.sa_handler = on_signal;
  // No SA_RESTART: waiting for a line of input must end too.
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
}

}  // namespace

Interrupt::Interrupt() { rearm(); }

Interrupt::~Interrupt() { std::signal(SIGINT, SIG_DFL); }

bool Interrupt::requested() const { return g_requested != 0; }

void Interrupt::rearm() {
  g_requested = 0;
  install();
}

}  // namespace winnow::cli
