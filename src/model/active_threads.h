// How many threads of a team take part, so that a machine with other work is not waited for.
#pragma once

namespace winnow {

// What the process got of the processor for a while.
struct ProcessorUse {
  double wall_s = 0;
  double cpu_s = 0;      // of all its threads together
  long preemptions = 0;  // times that a thread had to give up its core to another
};

// Threads of one graph wait for each other hundreds of times a token. As soon as there are fewer free cores than
// threads, each of these waits may be for a thread that has no core, and those that spin take the cores that it needs:
// two threads are then ten times slower than one. So a team gives up the threads that the machine has no core for, and
// tries from time to time whether it has again. Not thread-safe.
class ActiveThreads {
 public:
  explicit ActiveThreads(int n_threads) : n_threads_(n_threads), count_(n_threads) {}

  // Between 1 and n_threads.
  int count() const { return count_; }

  // What count() threads got since the last call; some 25 ms are enough.
  void add(const ProcessorUse& use);

 private:
  static constexpr double kFirstPause = 0.25;  // seconds
  static constexpr double kLongestPause = 4;

  int n_threads_;
  int count_;
  bool is_trial_ = false;         // the last call raised the count
  double calm_s_ = 0;             // without lost cores
  double pause_s_ = kFirstPause;  // before more are tried; doubles with every trial in vain
};

}  // namespace winnow
