// What is behind winnow::Batch: one thread, and what other threads may see of its work.
#pragma once

#include <condition_variable>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_set>
#include <vector>

#include "batch/context_store.h"
#include "batch/job.h"
#include "winnow/batch.h"

namespace winnow {

struct Batch::Impl {
  Impl(std::shared_ptr<Engine> the_engine, const BatchOptions& the_options);

  // --- The batch's thread. ---
  void run();
  // Waits while there is nothing to do; takes what others left. False: the end.
  bool receive();
  void accept(std::unique_ptr<BatchJob> job);
  void cancel_jobs(const std::vector<std::uint64_t>& ids);

  // Starts jobs of the queue while there is room, in order.
  void admit();
  bool make_room(const BatchJob& job, BatchContext* context);
  void start(std::unique_ptr<BatchJob> job, ContextPointer context);
  // The context is there: what follows it is read.
  void start_own_part(BatchJob& job);

  // Slices of prefill, of one reading after the other, for so many seconds and at least one.
  void read(double seconds);
  // One slice; whether the reading goes on.
  bool read_slice(BatchReading& reading);
  void finish_context(const ContextPointer& context);
  std::vector<BatchJob*> users_of(const BatchContext& context) const;
  // Ends the readings of a job and of a context; either may be null.
  void stop_reading(const BatchJob* job, const BatchContext* context);
  void start_answers(BatchJob& job);

  // One step for all answers. Returns its seconds.
  double step();
  // Gives back what the last step took, which was promised to answers that are over.
  void drop_step();
  void feed(const std::vector<std::pair<BatchJob*, BatchAnswer*>>& batch);
  // Chooses an answer's next token and reports it; ends the answer where it is over. False: the job is gone.
  bool choose(BatchJob& job, BatchAnswer& answer);
  bool finish_answer(BatchJob& job, BatchAnswer& answer, FinishReason reason);

  // Ends a job that is under way or queued, and tells its owner.
  void finish(BatchJob& job, FinishReason reason);
  void fail(BatchJob& job, ErrorCode code, const std::string& message);
  std::size_t bytes_promised() const;
  int n_answers() const;  // of all jobs under way
  void publish();

  const std::shared_ptr<Engine> engine;
  const BatchOptions options;
  ContextStore store;
  std::deque<std::unique_ptr<BatchJob>> queue;
  std::list<std::unique_ptr<BatchJob>> active;  // admitted
  std::list<BatchReading> readings;             // the next slice belongs to the first
  double turn_s = 0;                            // of the first one's present turn
  BatchStatistics totals;
  bool has_changed = true;  // since the last publish

  // --- Shared. ---
  mutable std::mutex mutex;
  std::condition_variable wake;     // for the batch's thread
  std::condition_variable drained;  // for drain()
  std::deque<std::unique_ptr<BatchJob>> incoming;
  std::vector<std::uint64_t> cancelled;
  std::unordered_set<std::uint64_t> live;  // submitted, not done
  std::size_t n_waiting = 0;               // incoming and queue
  std::uint64_t next_id = 1;
  std::int64_t n_refused = 0;
  std::optional<BatchClock::time_point> turn_begin;  // nothing: the thread waits for work
  bool is_draining = false, is_stopping = false;
  BatchStatistics published;
  std::vector<BatchEntry> published_entries;

  std::thread thread;  // last: it uses all of the above
};

}  // namespace winnow
