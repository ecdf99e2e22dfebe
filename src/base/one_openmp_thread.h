// oneDNN plans and runs with OpenMP's number of threads.
#pragma once

#include <omp.h>

namespace winnow {

// While it lives, what the calling thread asks of oneDNN is done by that thread alone: the threads that ask share their
// work out themselves. What the host program had set comes back.
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
