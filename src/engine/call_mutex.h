// The engine's lock. A callback (progress, logits, a scorer, an observer) runs while its engine computes: a call of
// that engine from there would wait for itself, so it is an error instead.
#pragma once

#include <atomic>
#include <mutex>
#include <thread>

#include "winnow/error.h"

namespace winnow {

// A mutex that knows the thread that holds it.
class CallMutex {
 public:
  // Throws Error(kInvalidArgument) if this thread holds it.
  void lock() {
    if (is_held_here()) {
      throw Error(ErrorCode::kInvalidArgument,
                  "a callback cannot use the engine that calls it: do it after the call, or use another engine");
    }
    mutex_.lock();
    holder_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  }
  void unlock() {
    holder_.store({}, std::memory_order_relaxed);
    mutex_.unlock();
  }
  // Returns true if the calling thread holds it.
  bool is_held_here() const { return holder_.load(std::memory_order_relaxed) == std::this_thread::get_id(); }

 private:
  std::mutex mutex_;
  std::atomic<std::thread::id> holder_ = {};
};

// Returns a lock for a destructor, which must not throw: an object may well end in a callback, under the lock held
// there.
inline std::unique_lock<CallMutex> lock_to_destroy(CallMutex& mutex) {
  return mutex.is_held_here() ? std::unique_lock(mutex, std::defer_lock) : std::unique_lock(mutex);
}

}  // namespace winnow
