#include "cli/progress_bar.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

namespace winnow::cli {

ProgressBar::ProgressBar(std::string what, std::chrono::nanoseconds between_lines)
    : what_(std::move(what)), between_lines_(between_lines), is_on_terminal_(isatty(STDERR_FILENO) == 1) {}

ProgressBar::~ProgressBar() {
  if (drawn_) std::fputs("\r\033[K", stderr);
}

void ProgressBar::draw(double share, const std::string& left) {
  constexpr int kCells = 30;
  const int filled = static_cast<int>(share * kCells);
  const std::string line = what_ + " [" + std::string(static_cast<std::size_t>(filled), '=') +
                           std::string(static_cast<std::size_t>(kCells - filled), ' ') + "]";
  std::fprintf(stderr, "\r%s %3d %%%s\033[K", line.c_str(), static_cast<int>(share * 100), left.c_str());
  std::fflush(stderr);
}

void ProgressBar::update(std::int64_t done, std::int64_t total, const std::string& detail) {
  if (total <= 0) return;
  const Clock::time_point now = Clock::now();
  if (is_on_terminal_) {
    // Ten updates a second look smooth and cost nothing.
    if (drawn_ && done < total && now - last_told_ < std::chrono::milliseconds(100)) return;
  } else if (now - last_told_ <
             (logged_ ? between_lines_ : std::min<std::chrono::nanoseconds>(between_lines_, kBeforeLines))) {
    return;
  }
  last_told_ = now;
  const double share = static_cast<double>(done) / static_cast<double>(total);
  const double elapsed = std::chrono::duration<double>(now - start_).count();
  // Before a second has passed, the remaining time is a guess.
  const bool can_tell = share > 0 && (elapsed > 1 || !is_on_terminal_);
  char left[40] = "";
  if (can_tell) std::snprintf(left, sizeof left, "%.0f s left", std::ceil(elapsed * (1 - share) / share));
  if (is_on_terminal_) {
    drawn_ = true;
    draw(share, can_tell ? "  " + std::string(left) : "");
    return;
  }
  logged_ = true;
  const std::string said = detail.empty() ? std::to_string(static_cast<int>(share * 100)) + " %" : detail;
  std::fprintf(stderr, "%s: %s%s%s\n", what_.c_str(), said.c_str(), can_tell ? ", " : "", left);
}

}  // namespace winnow::cli
