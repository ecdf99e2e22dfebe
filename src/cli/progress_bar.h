// A line on a terminal that says how far a prefill is.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace winnow::cli {

class ProgressBar {
 public:
  // Draws on stderr, and only if that is a terminal.
  explicit ProgressBar(std::string what);
  ~ProgressBar();  // wipes the line
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void update(std::int64_t done, std::int64_t total);
  bool enabled() const { return enabled_; }

 private:
  using Clock = std::chrono::steady_clock;
  std::string what_;
  bool enabled_;
  bool drawn_ = false;
  Clock::time_point start_ = Clock::now();
  Clock::time_point last_drawn_{};
};

}  // namespace winnow::cli
