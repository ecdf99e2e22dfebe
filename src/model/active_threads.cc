#include "model/active_threads.h"

#include <algorithm>
#include <cmath>

namespace winnow {

void ActiveThreads::add(const ProcessorUse& use) {
  if (n_threads_ == 1 || !(use.wall_s > 0)) return;
  // On an idle machine a quarter of a core is lost to imbalance and sleep as well, but no thread is preempted there.
  constexpr double kUnnoticed = 0.25;
  constexpr double kPreemptionEvery = 0.02;  // seconds
  const double lost = count_ - use.cpu_s / use.wall_s;
  const bool is_crowded =
      lost >= kUnnoticed && static_cast<double>(use.preemptions) >= std::max(2.0, use.wall_s / kPreemptionEvery);
  if (is_crowded) {
    if (is_trial_) pause_s_ = std::min(2 * pause_s_, kLongestPause);
    count_ = std::max(1, static_cast<int>(std::floor(count_ - lost + kUnnoticed)));
    is_trial_ = false;
    calm_s_ = 0;
    return;
  }
  calm_s_ += use.wall_s;
  if (count_ == n_threads_) {
    is_trial_ = false;
    if (calm_s_ >= kLongestPause) pause_s_ = kFirstPause;
  } else if (is_trial_ || calm_s_ >= pause_s_) {
    count_ = std::min(2 * count_, n_threads_);
    is_trial_ = true;
    calm_s_ = 0;
  }
}

}  // namespace winnow
