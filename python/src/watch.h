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

class Watch {
 public:
  // on_progress: called with work done and to do, some times a second and in the end, or None.
  explicit Watch(nanobind::object on_progress = nanobind::none()) : on_progress_(std::move(on_progress)) {}

  // To be called by the computation. False once it should stop: a signal's handler or on_progress raised something.
  ProgressCallback callback() {
    return [this](std::int64_t done, std::int64_t total) { return look(done, total); };
  }

  // Runs it without the GIL. What stopped it is raised in the place of kCancelled.
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
  static constexpr std::chrono::milliseconds kBetween{50};

  bool look(std::int64_t done, std::int64_t total) {
    if (raised_) return false;
    const auto now = std::chrono::steady_clock::now();
    if (now - last_ < kBetween && done < total) return true;
    last_ = now;
    const nanobind::gil_scoped_acquire acquire;
    try {
      if (PyErr_CheckSignals() != 0) throw nanobind::python_error();
      if (!on_progress_.is_none()) on_progress_(done, total);
      return true;
    } catch (...) {
      raised_ = std::current_exception();
      return false;
    }
  }

  nanobind::object on_progress_;
  std::chrono::steady_clock::time_point last_{};
  std::exception_ptr raised_;
};

}  // namespace winnow::python
