// Measures how long work takes.
#pragma once

#include <chrono>

namespace winnow {

// A clock that runs from when it is made.
class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace winnow
