// A guard against oneDNN's own threads: oneDNN plans and runs with OpenMP's number of threads.
#pragma once

#include <omp.h>

namespace winnow {

// While an object of this class lives, oneDNN runs the calls of its thread on that thread alone, since the callers
// distribute their work over threads themselves. The destructor restores the host program's setting.
class OneOpenMpThread {
 public:
  OneOpenMpThread() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~OneOpenMpThread() { omp_set_num_threads(before_); }
  OneOpenMpThread(const OneOpenMpThread&) = delete;
  OneOpenMpThread& operator=(const OneOpenMpThread&) = delete;

 private:
  int before_;
};

}  // namespace winnow
