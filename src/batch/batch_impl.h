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

#include "batch/file_work.h"
#include "batch/job.h"
#include "batch/prefix_files.h"
#include "batch/prefix_tree.h"
#include "winnow/batch.h"

namespace winnow {

// The answers of a step, which go with their jobs.
struct AnswerInStep {
  std::uint64_t job_id;
  BatchAnswer* answer;
};
using AnswersInStep = std::vector<AnswerInStep>;

// A prompt or context that is read in slices: either `context` or `job` is set.
struct ScheduledPrefill {
  PrefixPointer context;
  BatchJob* job = nullptr;
  Prefill prefill;
  std::int32_t n_tokens = 0;
  BatchClock::time_point started = BatchClock::now(), reported = started;
};

struct Batch::Impl {
  Impl(std::shared_ptr<Engine> the_engine, const BatchOptions& the_options);

  // --- The batch's thread. ---
  void run();
  void work();  // until the batch ends
  // Waits while there is nothing to do; takes what others left. False: the end.
  bool receive();
  void accept(std::unique_ptr<BatchJob> job);
  void cancel_jobs(const std::vector<std::uint64_t>& ids);

  // Starts jobs of the queue while there is room, in order.
  void admit();
  // What of a request is there already, of what it may begin with.
  PrefixTree::Match match_prefix(const BatchJob& job) const;
  // Its context, where somebody else reads it at present.
  PrefixPointer find_pending_context(const BatchJob& job) const;
  bool make_room(std::size_t bytes);
  // Uses match.prefix, which goes over to the job.
  void start(std::unique_ptr<BatchJob> job, const PrefixTree::Match& match, const MemoryNeeds& needs);
  // Behind what the job begins with, which is there.
  void start_own_part(BatchJob& job);
  Session open_session(const BatchJob& job) const;  // with what the job begins with, or empty
  void read_on(BatchJob& job);
  // Tells token i of the sequence with its probability, where it is one of the prompt.
  static void score(const BatchJob& job, std::size_t i, std::span<const float> logits);
  void read_on(const PrefixPointer& context);

  // Slices of prefill, of one reading after the other, for so many seconds and at least one.
  void read(double seconds);
  // One slice; whether the reading goes on.
  bool read_slice(ScheduledPrefill& reading);
  void tell_reading(ScheduledPrefill& reading) const;
  void finish_part(BatchJob& job);
  void finish_part(const PrefixPointer& context);
  std::vector<BatchJob*> users_of(const KeptPrefix& context) const;
  // Ends the readings of a job and of a context; either may be null.
  void stop_reading(const BatchJob* job, const KeptPrefix* context);

  // Keep what was read, for later requests. The job then begins with it.
  void keep_prompt(BatchJob& job);
  void keep_answer(const BatchJob& job, Session session);
  bool keeps(const BatchJob& job) const;
  void restore();  // from the folder
  // Whether a request of the queue waits for a file with its beginning, which is then looked for or being read, or for
  // room for that.
  enum class FileWait { kNone, kFile, kRoom };
  FileWait wait_for_file(BatchJob& job);
  void search(const BatchJob& job, std::size_t n_least);
  void finish_search();
  void load(const SavedPrefix& file, const BatchJob& job, std::size_t bytes);
  void finish_load();
  void drop_unwanted_load();
  // Begins to save one that has waited so long. False if there is none, and none is being saved.
  bool save_one(std::chrono::steady_clock::duration context_age, std::chrono::steady_clock::duration other_age);
  void finish_save();
  bool is_file_over() const {
    return (searching && searching->is_over) || (loading && loading->is_over) || (saving && saving->is_over) ||
           (touching && touching->is_over);
  }
  void warn(const std::string& sentence) const;
  // Does `work` on a thread of its own, then sets is_over and wakes the batch's thread.
  template <class Work>
  auto beside(std::atomic<bool>& is_over, Work work);
  // When the next one has waited for so long. Nothing: there is none.
  std::optional<BatchClock::time_point> next_save(std::chrono::steady_clock::duration other_age) const;
  bool awaits_save(const KeptPrefix& prefix) const;
  // The files of what a request begins with are used.
  void note_use(KeptPrefix& prefix);
  // Begins to tell the files so. False if there is none to tell, and none is being told.
  bool touch_files();
  void finish_touch();
  void start_answers(BatchJob& job);
  void finish_embedding(BatchJob& job);

  // One step for all answers; over ranks, one of the groups that they take in turn. Returns its seconds.
  double step();
  // Over ranks: starts steps for these answers until every rank has one, and finishes the one that was started first.
  void step_in_turn(const AnswersInStep& waiting);
  void finish_step();
  enum class Feed { kWhole, kStart };
  void feed(const AnswersInStep& batch, Feed feeding);
  // Chooses the next tokens of those that are still there.
  void go_on(const AnswersInStep& batch, const std::vector<CutError::Failure>& failures = {});
  BatchJob* find_running(std::uint64_t id) const;  // null: it has ended
  // Chooses an answer's next token and reports it; ends the answer where it is over. False: the job is gone.
  bool choose(BatchJob& job, BatchAnswer& answer);
  bool finish_answer(BatchJob& job, BatchAnswer& answer, FinishReason reason);

  // Ends a job that is under way or queued, and tells its owner.
  void finish(BatchJob& job, FinishReason reason);
  void fail(BatchJob& job, ErrorCode code, const std::string& message);
  std::size_t bytes_reserved() const;
  int n_answers() const;  // of all jobs under way
  void publish();

  const std::shared_ptr<Engine> engine;
  const BatchOptions options;
  std::optional<PrefixFiles> files;  // with a folder
  PrefixTree tree;
  std::deque<std::unique_ptr<BatchJob>> waiting;
  std::list<std::unique_ptr<BatchJob>> running;  // admitted
  std::list<ScheduledPrefill> prefills;          // the next slice belongs to the first
  double turn_s = 0;                             // of the first one's present turn
  std::vector<FileTouch::Used> used_files;       // to be touched
  std::deque<AnswersInStep> steps;               // under way, over ranks; of answers that may be gone
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

  // The batch's thread's; null: there is none at present. Their threads use what is above.
  std::unique_ptr<FileSearch> searching;
  std::unique_ptr<FileLoad> loading;
  std::unique_ptr<FileSave> saving;
  std::unique_ptr<FileTouch> touching;

  std::thread thread;  // last: it uses all of the above
};

}  // namespace winnow
