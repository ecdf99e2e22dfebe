// The processor's time of this thread, which other processes' work does not lengthen.
#pragma once

#include <ctime>

namespace winnow::test {

inline double thread_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace winnow::test
