#include "cli/progress_bar.h"

#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <utility>

namespace winnow::cli {

ProgressBar::ProgressBar(std::string what) : what_(std::move(what)), enabled_(isatty(STDERR_FILENO) == 1) {}

ProgressBar::~ProgressBar() {
  if (drawn_) std::fputs("\r\033[K", stderr);
}

void ProgressBar::update(std::int64_t done, std::int64_t total) {
  if (!enabled_ || total <= 0) return;
  const Clock::time_point now = Clock::now();
  // Ten times a second is smooth and costs nothing.
  if (drawn_ && done < total && now - last_drawn_ < std::chrono::milliseconds(100)) return;
  last_drawn_ = now;
  drawn_ = true;
  constexpr int kCells = 30;
  const double share = static_cast<double>(done) / static_cast<double>(total);
  const int filled = static_cast<int>(share * kCells);
  const double elapsed = std::chrono::duration<double>(now - start_).count();
  std::string line = what_ + " [" + std::string(static_cast<std::size_t>(filled), '=') +
                     std::string(static_cast<std::size_t>(kCells - filled), ' ') + "]";
  std::fprintf(stderr, "\r%s %3d %%", line.c_str(), static_cast<int>(share * 100));
  // Before a second has passed the rest is a guess.
  if (elapsed > 1 && share > 0) std::fprintf(stderr, "  %.0f s left", std::ceil(elapsed * (1 - share) / share));
  std::fputs("\033[K", stderr);
  std::fflush(stderr);
}

}  // namespace winnow::cli
