// The choice of how many threads of a team take part, so that they do not wait for cores that other programs use.
#pragma once

namespace winnow {

// The process's use of the processor over some time.
struct ProcessorUse {
  double wall_s = 0;
  double cpu_s = 0;      // sum over all its threads
  long preemptions = 0;  // times that a thread had to give up its core to another
};

// A counter of active threads. The threads of one graph wait for each other hundreds of times a token. As soon as there
// are fewer free cores than threads, each of these waits may be for a thread that has no core, while those that spin
// occupy the cores that it needs: two threads are then ten times slower than one. A team therefore gives up the threads
// for which the machine has no core, and tries from time to time if it has one again. Not thread-safe.
class ActiveThreads {
 public:
  explicit ActiveThreads(int n_threads) : n_threads_(n_threads), count_(n_threads) {}

  // Returns the number of threads to use, between 1 and n_threads.
  int count() const { return count_; }

  // Takes the processor use of count() threads since the last call, and decides anew. Some 25 ms of it are enough.
  void add(const ProcessorUse& use);

 private:
  static constexpr double kFirstPause = 0.25;  // seconds
  static constexpr double kLongestPause = 4;

  int n_threads_;
  int count_;
  bool is_trial_ = false;         // the last call raised the count
  double calm_s_ = 0;             // seconds since a core was lost
  double pause_s_ = kFirstPause;  // seconds before more threads are tried; doubles with every trial in vain
};

}  // namespace winnow
