#include "batch/request_inbox.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

namespace winnow {

std::uint64_t RequestInbox::submit(std::unique_ptr<BatchJob> job, std::span<const std::uint64_t> follows) {
  const std::lock_guard lock(mutex_);
  const auto is_live = [&](std::uint64_t id) { return live_.contains(id); };
  if (is_closed_ || is_stopping_ || (is_draining_ && std::ranges::none_of(follows, is_live))) {
    throw Error(ErrorCode::kCancelled, "no more requests are accepted: this process is shutting down");
  }
  // Requests that can start at once pass through the queue, too, so it has room for them besides those that wait.
  const int n_idle = std::max(options_.n_parallel - statistics_.n_reading - statistics_.n_answering, 0);
  if (n_waiting_ >= static_cast<std::size_t>(options_.max_queued + n_idle)) {
    ++n_refused_;
    const BatchStatistics& now = statistics_;
    const double seconds = now.finished > 0 ? (now.decode_s + now.prefill_s) / static_cast<double>(now.finished) : 1;
    throw QueueFull("the queue is full: " + std::to_string(n_waiting_) + " requests are waiting; try again in a while",
                    std::clamp(static_cast<int>(seconds + 1), 1, 60));
  }
  job->id = next_id_++;
  const std::uint64_t id = job->id;
  live_.insert(id);
  incoming_.push_back(std::move(job));
  ++n_waiting_;
  wake_.notify_all();
  return id;
}

void RequestInbox::cancel(std::uint64_t id) {
  const std::lock_guard lock(mutex_);
  if (!live_.contains(id)) return;
  cancelled_.push_back(id);
  wake_.notify_all();
}

bool RequestInbox::drain(double seconds) {
  std::unique_lock lock(mutex_);
  is_draining_ = true;
  wake_.notify_all();
  return drained_.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return live_.empty(); });
}

void RequestInbox::stop() {
  const std::lock_guard lock(mutex_);
  is_stopping_ = true;
  wake_.notify_all();
}

BatchStatistics RequestInbox::statistics() const {
  const std::lock_guard lock(mutex_);
  BatchStatistics statistics = statistics_;
  statistics.refused = n_refused_;
  statistics.n_queued = static_cast<int>(n_waiting_);
  if (turn_begin_) statistics.turn_s = seconds_between(*turn_begin_, BatchClock::now());
  return statistics;
}

std::vector<BatchEntry> RequestInbox::entries() const {
  const std::lock_guard lock(mutex_);
  return entries_;
}

void RequestInbox::end_work(std::atomic<bool>& is_over) {
  const std::lock_guard lock(mutex_);
  is_over = true;
  wake_.notify_all();
}

bool RequestInbox::has_news() const {
  const std::lock_guard lock(mutex_);
  return has_news_locked();
}

void RequestInbox::wait(std::optional<BatchClock::time_point> due, const std::function<bool()>& is_work_over) {
  std::unique_lock lock(mutex_);
  const auto is_awake = [&] { return has_news_locked() || is_work_over(); };
  turn_begin_.reset();
  if (due) {
    wake_.wait_until(lock, *due, is_awake);
  } else {
    wake_.wait(lock, is_awake);
  }
}

RequestInbox::News RequestInbox::take() {
  const std::lock_guard lock(mutex_);
  turn_begin_ = BatchClock::now();
  return {
      .jobs = std::exchange(incoming_, {}), .cancelled = std::exchange(cancelled_, {}), .is_stopping = is_stopping_};
}

JobQueue RequestInbox::close() {
  const std::lock_guard lock(mutex_);
  is_closed_ = true;
  return std::exchange(incoming_, {});
}

void RequestInbox::note_admitted() {
  const std::lock_guard lock(mutex_);
  --n_waiting_;
}

void RequestInbox::note_done(std::uint64_t id, bool was_waiting) {
  const std::lock_guard lock(mutex_);
  n_waiting_ -= was_waiting;
  live_.erase(id);
  if (live_.empty()) drained_.notify_all();
}

void RequestInbox::publish(const BatchStatistics& statistics, std::optional<std::vector<BatchEntry>> entries) {
  const std::lock_guard lock(mutex_);
  statistics_ = statistics;
  if (entries) entries_ = std::move(*entries);
}

}  // namespace winnow
