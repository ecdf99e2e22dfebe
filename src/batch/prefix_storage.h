// Moves prefixes between the prefix tree and their folder on threads of its own, while answers go on.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "batch/file_work.h"
#include "batch/job.h"
#include "batch/prefix_files.h"
#include "batch/prefix_tree.h"
#include "batch/request_inbox.h"

namespace winnow {

// Saves prefixes once they have rested, loads them when a waiting request has one in a file, and touches their files
// when requests hit them. Does nothing without a folder (BatchOptions::cache_dir). Only the batch's thread calls it.
class PrefixStorage {
 public:
  using Age = BatchClock::duration;

  // Loads the folder's prefixes into the tree as far as there is room. Throws Error if the folder cannot be used.
  PrefixStorage(const std::shared_ptr<Engine>& engine, const BatchOptions& options, PrefixTree& tree,
                RequestInbox& inbox);

  // The thing that a waiting request needs before it can be admitted.
  enum class Wait {
    kNone,  // no file
    kFile,  // a file with a prefix of its context, which is being searched for or loaded
    kRoom,  // memory for such a file's session
  };
  // Begins the search or the load that a waiting request needs next, and returns what it waits for. `make_room` frees
  // memory for this many bytes and returns whether it could.
  Wait fetch_prefix(BatchJob& job, const std::function<bool(std::size_t)>& make_room);
  // Cancels the load under way if none of the waiting requests needs it any more.
  void drop_unwanted_load(const JobQueue& waiting);

  // Begins to save one prefix: a context that has rested for context_age, or another prefix that has for other_age.
  // Returns false if there is none and no save or touch is under way.
  bool save_one(Age context_age, Age other_age);
  // Returns when the next prefix is due: a context at once, another one after other_age; nullopt if none is to be
  // saved.
  std::optional<BatchClock::time_point> next_save(Age other_age) const;

  // Notes that a request has hit a prefix, so that its file and those of its parents are touched.
  void note_use(KeptPrefix& prefix);
  // Begins to touch the noted files. Returns false if there are none and none is being touched.
  bool touch_files();

  // Takes the results of tasks that are over. Returns whether the tree has a new prefix.
  bool collect(JobQueue& waiting);
  // Finishes the load under way, and all saves and touches that are under way or still to do.
  void flush(JobQueue& waiting);

  bool is_over() const;  // true: collect has results to take
  bool is_searching() const { return searching_ != nullptr; }
  bool is_loading() const { return loading_ != nullptr; }
  bool is_saving() const { return saving_ != nullptr; }
  std::size_t bytes_reserved() const { return loading_ ? loading_->bytes_reserved : 0; }  // for the load under way

 private:
  void restore();
  void search(const BatchJob& job, std::size_t n_least);
  void load(const SavedPrefix& file, const BatchJob& job, std::size_t bytes);
  void finish_search(JobQueue& waiting);
  bool finish_load(JobQueue& waiting);
  void finish_save();
  void finish_touch();
  bool awaits_save(const KeptPrefix& prefix) const;
  void warn(const std::string& sentence) const;
  // Runs `work` on a thread of its own, which then sets is_over and wakes the batch's thread. Returns its future.
  template <class Work>
  auto start_thread(std::atomic<bool>& is_over, Work work);

  const std::shared_ptr<Engine> engine_;
  const BatchOptions& options_;
  PrefixTree& tree_;
  RequestInbox& inbox_;
  std::optional<PrefixFiles> files_;         // nullopt: there is no folder
  std::vector<FileTouch::Used> used_files_;  // to be touched
  // The tasks under way, or null. Last: their destructors wait for threads that use the above.
  std::unique_ptr<FileSearch> searching_;
  std::unique_ptr<FileLoad> loading_;
  std::unique_ptr<FileSave> saving_;
  std::unique_ptr<FileTouch> touching_;
};

}  // namespace winnow
