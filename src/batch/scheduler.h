// The batch's scheduler: decides which requests wait, which run, and how much of the engine's memory they may take.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "batch/job.h"
#include "batch/prefill_slices.h"
#include "batch/prefix_cache.h"
#include "batch/request_inbox.h"

namespace winnow {

// Owns the requests, from when the batch's thread takes them until they are done, with the prefix cache and the
// prefills under way. Memory is reserved for a request before it is admitted, so that no running one is ever preempted.
// Only the batch's thread calls it.
class Scheduler : private PrefillListener {
 public:
  // `on_prompt_read` is called with a running job whose prompt has been read, and starts its answers.
  Scheduler(const std::shared_ptr<Engine>& engine, const BatchOptions& options, RequestInbox& inbox,
            std::function<void(BatchJob&)> on_prompt_read);

  // Checks a request and puts it last in the waiting queue, or fails it.
  void add(std::unique_ptr<BatchJob> job);
  // Puts requests into the waiting queue that are about to be cancelled or failed.
  void add_unchecked(JobQueue jobs);
  void cancel(const std::vector<std::uint64_t>& ids);
  // Admits waiting requests while there is room, first come, first served. One that waits for a saved prefix to load
  // does not block those after it.
  void admit();

  bool has_prefills() const { return !prefills_.empty(); }
  // Computes slices of prefill for this many seconds, and at least one. Must not be called unless has_prefills().
  void prefill(double seconds) { prefills_.run(seconds); }

  const JobList& running() const { return running_; }
  BatchJob* find_running(std::uint64_t id) const;  // null: it has ended
  // Returns true if there is no work until news comes: no request runs, and those that wait need files, or memory that
  // file work holds.
  bool is_idle() const;

  // Ends a running or waiting job and calls its on_done.
  void finish(BatchJob& job, FinishReason reason);
  void fail(BatchJob& job, ErrorCode code, const std::string& message);
  // Calls a function of the caller's at the end of an answer, when no failure can change the answer: what it throws is
  // a warning.
  void notify(const std::function<void()>& callback) const;
  // Ends all jobs.
  void finish_all(FinishReason reason);
  void fail_all(ErrorCode code, const std::string& message);

  // Takes the results of file work, which may let waiting requests go on.
  void collect_file_work() { has_changed_ |= cache_.storage().collect(waiting_); }
  // Finishes file work and saves what is still to be saved. Called when no request is left.
  void flush_files() { cache_.storage().flush(waiting_); }
  PrefixCache& cache() { return cache_; }

  BatchStatistics& totals() { return totals_; }
  // Records that the entries have changed since they were published.
  void note_change() { has_changed_ = true; }
  // Publishes the totals and entries for other threads.
  void publish();

 private:
  bool make_room(std::size_t bytes);
  // Runs an admitted job from a match whose prefix was acquired for it.
  void start(std::unique_ptr<BatchJob> job, const PrefixTree::Match& match, const MemoryNeeds& needs);
  // Begins the prefill of the tokens after the job's prefix, which is ready.
  void start_own_part(BatchJob& job);
  Session open_session(const BatchJob& job) const;  // a fork of the job's prefix, or an empty session
  void continue_prefill(BatchJob& job);
  void finish_embedding(BatchJob& job);
  void keep_prompt(BatchJob& job);
  std::vector<BatchJob*> users_of(const KeptPrefix& context) const;
  void note_slice(ScheduledPrefill& scheduled) override;
  void finish_part(const PrefixPointer& context) override;
  void finish_part(BatchJob* job) override;
  void fail_part(const PrefixPointer& context, ErrorCode code, const std::string& message) override;
  void fail_part(BatchJob* job, ErrorCode code, const std::string& message) override;
  std::size_t bytes_reserved() const;
  int n_answers() const;  // of the running jobs
  std::vector<BatchEntry> entries() const;

  Engine& engine_;
  const BatchOptions& options_;
  RequestInbox& inbox_;
  const std::function<void(BatchJob&)> on_prompt_read_;
  BatchStatistics totals_;
  bool has_changed_ = true;  // since the entries were published
  PrefixCache cache_;
  JobQueue waiting_;
  JobList running_;
  PrefillSlices prefills_;
};

}  // namespace winnow
