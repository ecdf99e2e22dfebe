#include "cli/progress_bar.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string_view>
#include <utility>

namespace winnow::cli {
namespace {

// Returns the number of columns of the terminal behind the standard error.
std::size_t terminal_columns() {
  constexpr std::size_t kUsual = 80;  // where the terminal does not say
  winsize size = {};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kUsual;
}

}  // namespace

ProgressBar::ProgressBar(std::string what, std::chrono::nanoseconds between_lines)
    : what_(std::move(what)), between_lines_(between_lines), is_on_terminal_(isatty(STDERR_FILENO) == 1) {}

ProgressBar::~ProgressBar() {
  if (drawn_) std::fputs("\r\033[K", stderr);
}

std::string ProgressBar::line(const std::string& what, double share, const std::string& left, std::size_t columns) {
  constexpr std::size_t kMostCells = 30, kLeftSize = 14;  // room for a time, so that the bar keeps its length
  const std::size_t most = std::max<std::size_t>(columns, 1) - 1;
  char percent[16];
  std::snprintf(percent, sizeof percent, "] %3d %%", static_cast<int>(share * 100));
  const std::string before = what + " [", after = percent + left;
  const std::size_t n_others = before.size() + std::string_view(percent).size() + std::max(left.size(), kLeftSize);
  const std::size_t n_cells = std::min(kMostCells, most - std::min(most, n_others));
  std::string cells(n_cells, ' ');
  std::fill_n(cells.begin(), static_cast<std::size_t>(share * static_cast<double>(n_cells)), '=');
  return (before + cells + after).substr(0, most);
}

void ProgressBar::draw(double share, const std::string& left) {
  std::fprintf(stderr, "\r%s\033[K", line(what_, share, left, terminal_columns()).c_str());
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
