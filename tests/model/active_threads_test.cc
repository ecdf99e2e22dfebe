// How many threads a team gives up on a busy machine, and when it tries them again.
#include "model/active_threads.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace winnow {
namespace {

// A machine whose cores are shared evenly by our threads, which never sleep, and those of others.
struct Machine {
  int n_cores;
  int n_others;

  ProcessorUse use(int n_threads, double wall_s) const {
    const double share = std::min(1.0, static_cast<double>(n_cores) / (n_threads + n_others));
    const double lost = n_threads * (1 - share) * wall_s;
    return {.wall_s = wall_s, .cpu_s = n_threads * share * wall_s, .preemptions = static_cast<long>(lost / 0.004)};
  }
};

// Returns the number of active threads after each measurement window within total_s seconds.
std::vector<int> counts(ActiveThreads& threads, const Machine& machine, double total_s) {
  constexpr double kWindow = 0.025;
  std::vector<int> found;
  for (double time = 0; time < total_s; time += kWindow) {
    threads.add(machine.use(threads.count(), kWindow));
    found.push_back(threads.count());
  }
  return found;
}

TEST(ActiveThreadsTest, AllOnAnIdleMachine) {
  for (const int n : {1, 2, 16}) {
    ActiveThreads threads(n);
    for (const int count : counts(threads, {.n_cores = n, .n_others = 0}, 10)) EXPECT_EQ(count, n);
  }
}

// Threads that sleep while they wait use little processor time, but no other thread takes it from them.
TEST(ActiveThreadsTest, SleepIsNotALoad) {
  ActiveThreads threads(8);
  for (int i = 0; i < 100; ++i) {
    threads.add({.wall_s = 0.025, .cpu_s = 0.05, .preemptions = 0});
    EXPECT_EQ(threads.count(), 8);
  }
}

TEST(ActiveThreadsTest, GivesUpWhatTheMachineHasNoCoreFor) {
  ActiveThreads two(2);
  two.add(Machine{.n_cores = 2, .n_others = 2}.use(2, 0.025));
  EXPECT_EQ(two.count(), 1);
  ActiveThreads sixteen(16);
  sixteen.add(Machine{.n_cores = 16, .n_others = 1}.use(16, 0.025));
  EXPECT_EQ(sixteen.count(), 15);
  ActiveThreads eight(8);
  EXPECT_EQ(counts(eight, {.n_cores = 8, .n_others = 4}, 0.25).back(), 4);
}

TEST(ActiveThreadsTest, TriesAgainSeldomWhileTheLoadLasts) {
  for (const int n : {2, 8}) {
    ActiveThreads threads(n);
    const Machine machine{.n_cores = n, .n_others = n / 2};
    counts(threads, machine, 1);
    const std::vector<int> busy = counts(threads, machine, 60);
    const auto n_trials = std::count_if(busy.begin(), busy.end(), [&](int count) { return count > n / 2; });
    EXPECT_GE(n_trials, 5);
    EXPECT_LE(n_trials, 30);
  }
}

TEST(ActiveThreadsTest, HasAllAgainSoonAfterTheLoad) {
  ActiveThreads threads(16);
  counts(threads, {.n_cores = 16, .n_others = 64}, 60);
  EXPECT_EQ(threads.count(), 1);
  EXPECT_EQ(counts(threads, {.n_cores = 16, .n_others = 0}, 4.5).back(), 16);
}

TEST(ActiveThreadsTest, NothingToDecide) {
  ActiveThreads one(1);
  counts(one, {.n_cores = 1, .n_others = 3}, 5);
  EXPECT_EQ(one.count(), 1);
  ActiveThreads two(2);
  two.add({});
  EXPECT_EQ(two.count(), 2);
}

}  // namespace
}  // namespace winnow
