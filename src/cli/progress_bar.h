// Shows the progress of long work on the standard error: a line that is drawn again and again on a terminal, and a line
// every few seconds elsewhere, for a job's log.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

namespace winnow::cli {

class ProgressBar {
 public:
  // The least time before the first line of a log, and between two lines. Work that reports in steps of up to three
  // seconds thus has a line at least every 15.
  static constexpr std::chrono::seconds kBeforeLines{5}, kBetweenLines{12};

  explicit ProgressBar(std::string what, std::chrono::nanoseconds between_lines = kBetweenLines);
  ~ProgressBar();  // clears the line on a terminal
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // `detail` replaces the percentage in a log: "2,048 of 6,000 tokens".
  void update(std::int64_t done, std::int64_t total, const std::string& detail = {});
  bool is_on_terminal() const { return is_on_terminal_; }

  // Returns a terminal's line with the share that is done and `left`, the time that is left. It is shorter than
  // `columns`: a longer one would go on in the next line, where it cannot be drawn over.
  static std::string line(const std::string& what, double share, const std::string& left, std::size_t columns);

 private:
  using Clock = std::chrono::steady_clock;
  void draw(double share, const std::string& left);

  std::string what_;
  std::chrono::nanoseconds between_lines_;
  bool is_on_terminal_;
  bool drawn_ = false, logged_ = false;
  Clock::time_point start_ = Clock::now();
  Clock::time_point last_told_ = start_;
};

}  // namespace winnow::cli
