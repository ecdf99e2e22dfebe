// Connects a batch's thread with all others: they submit and cancel requests, and read what the batch's thread
// publishes.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_set>
#include <vector>

#include "batch/job.h"

namespace winnow {

// Thread-safe. The methods for other threads come first, then those for the batch's own.
class RequestInbox {
 public:
  explicit RequestInbox(const BatchOptions& options) : options_(options) {}

  // Takes a request and returns its number. Throws what Batch::submit throws.
  std::uint64_t submit(std::unique_ptr<BatchJob> job, std::span<const std::uint64_t> follows = {});
  void cancel(std::uint64_t id);
  // Refuses further requests. Returns true once all that were taken are done, or false after this many seconds.
  bool drain(double seconds);
  // Refuses further requests, and has the batch's thread end.
  void stop();
  BatchStatistics statistics() const;
  std::vector<BatchEntry> entries() const;
  // Sets is_over, which marks the end of a thread of file work, and wakes the batch's thread. The mutex is held until
  // both are done, so is_over may be destroyed once it is seen to be true.
  void end_work(std::atomic<bool>& is_over);

  // The requests and cancellations that came in since the batch's thread looked last.
  struct News {
    JobQueue jobs;
    std::vector<std::uint64_t> cancelled;  // requests to cancel
    bool is_stopping = false;
  };
  bool has_news() const;
  // Waits until there is news, until is_work_over returns true after end_work, or until `due`. The batch counts as idle
  // meanwhile.
  void wait(std::optional<BatchClock::time_point> due, const std::function<bool()>& is_work_over);
  // Begins the batch's next turn and returns the news.
  News take();
  // Refuses further requests, and returns those that were not taken yet.
  JobQueue close();
  // Records that a request has moved from the waiting queue to the running ones.
  void note_admitted();
  // Records that a request is done and its callbacks are destroyed.
  void note_done(std::uint64_t id, bool was_waiting);
  // Publishes the batch's totals and its entries (nullopt: they have not changed).
  void publish(const BatchStatistics& statistics, std::optional<std::vector<BatchEntry>> entries);

 private:
  bool has_news_locked() const { return is_stopping_ || !incoming_.empty() || !cancelled_.empty(); }

  const BatchOptions& options_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;     // the batch's thread waits for it
  std::condition_variable drained_;  // drain() waits for it
  JobQueue incoming_;
  std::vector<std::uint64_t> cancelled_;
  std::unordered_set<std::uint64_t> live_;  // requests that were submitted and are not done
  std::size_t n_waiting_ = 0;               // requests that were submitted and not admitted
  std::uint64_t next_id_ = 1;
  std::int64_t n_refused_ = 0;
  std::optional<BatchClock::time_point> turn_begin_;  // nullopt: the batch is idle
  bool is_draining_ = false, is_stopping_ = false, is_closed_ = false;
  BatchStatistics statistics_;
  std::vector<BatchEntry> entries_;
};

}  // namespace winnow
