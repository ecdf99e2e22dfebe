// Long computations for Python: without the GIL, with progress, and stopped by Ctrl-C.
#pragma once

#include <nanobind/nanobind.h>

#include <chrono>
#include <cstdint>
#include <exception>
#include <utility>

#include "winnow/error.h"
#include "winnow/session.h"

namespace winnow::python {

// The callbacks of a computation that runs without the GIL, and the exception that stopped it. For one thread.
class Watch {
 public:
  // on_progress is called with work done and to do, some times a second and at the end; it may be None.
  explicit Watch(nanobind::object on_progress = nanobind::none()) : on_progress_(std::move(on_progress)) {}

  // Returns true if the computation should stop: a signal's handler or on_progress raised an exception.
  bool is_stopped() {
    return look(last_look_, false, [] {});
  }

  // Reports progress, and returns the same.
  bool report(std::int64_t done, std::int64_t total) {
    return look(last_report_, done >= total, [&] {
      if (!on_progress_.is_none()) on_progress_(done, total);
    });
  }

  ProgressCallback callback() {
    return [this](std::int64_t done, std::int64_t total) { return !report(done, total); };
  }

  // Runs `work` without the GIL. The exception that stopped it is raised in place of kCancelled.
  template <typename Work>
  void run(Work&& work) {
    try {
      const nanobind::gil_scoped_release release;
      std::forward<Work>(work)();
    } catch (const Error&) {
      if (!raised_) throw;
    }
    if (raised_) std::rethrow_exception(raised_);
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kBetween{50};

  template <typename Show>
  bool look(Clock::time_point& last, bool is_due, const Show& show) {
    if (raised_) return true;
    const Clock::time_point now = Clock::now();
    if (now - last < kBetween && !is_due) return false;
    last = now;
    const nanobind::gil_scoped_acquire acquire;
    try {
      if (PyErr_CheckSignals() != 0) throw nanobind::python_error();
      show();
    } catch (...) {
      raised_ = std::current_exception();
    }
    return raised_ != nullptr;
  }

  nanobind::object on_progress_;
  Clock::time_point last_look_{}, last_report_{};
  std::exception_ptr raised_;
};

}  // namespace winnow::python
