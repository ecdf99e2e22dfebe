#include "batch/prefix_storage.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <string>
#include <utility>
#include <vector>

#include "batch/admission.h"
#include "batch/prefix_key.h"

namespace winnow {
namespace {

// The default limit of the folder, as a multiple of the memory for contexts: disks are larger.
constexpr std::size_t kFolderShare = 4;
// A file that is used all the time is touched at most this often.
constexpr std::chrono::minutes kTouchEvery{1};

// Returns whether a prefix needs a file of its own besides its children's. The file of a child that can be truncated to
// the prefix contains all of it. If no child can (sliding windows, recurrent layers, a cut), other requests can only be
// forked from the prefix itself, which they do where conversations branch, but not in the middle of one.
bool is_worth_a_file(const KeptPrefix& prefix) {
  if (prefix.is_context || prefix.children.empty()) return true;
  const auto n_tokens = static_cast<std::int32_t>(prefix.tokens.size());
  return prefix.children.size() > 1 && std::ranges::none_of(prefix.children, [&](const KeptPrefix* below) {
           return below->session.truncatable(n_tokens) > 0;
         });
}

}  // namespace

PrefixStorage::PrefixStorage(const std::shared_ptr<Engine>& engine, const BatchOptions& options, PrefixTree& tree,
                             RequestInbox& inbox)
    : engine_(engine), options_(options), tree_(tree), inbox_(inbox) {
  if (options.cache_dir.empty()) return;
  const std::size_t folder_bytes =
      options.cache_dir_bytes > 0 ? options.cache_dir_bytes : kFolderShare * options.context_bytes;
  files_.emplace(engine, options.cache_dir, PrefixFiles::Limits{options.context_bytes, folder_bytes},
                 options.on_warning);
  restore();
}

void PrefixStorage::restore() {
  std::vector<RestoredPrefix> saved;
  files_->restore(saved_prefix_keys, [&](RestoredPrefix prefix) {
    const PrefixPointer added = tree_.keep(prefix.key, std::move(prefix.session));
    if (added && tree_.bytes_kept() > options_.context_bytes) {
      tree_.remove(*added);  // it and the rest are loaded once a request needs them
      return false;
    }
    if (added) added->is_saved = true;
    return true;
  });
  // The newest came first, but has to count as the most recently used.
  const std::vector<PrefixPointer> restored(tree_.all().begin(), tree_.all().end());
  for (auto prefix = restored.rbegin(); prefix != restored.rend(); ++prefix) {
    tree_.acquire(**prefix);
    tree_.release(**prefix);
  }
}

bool PrefixStorage::awaits_save(const KeptPrefix& prefix) const {
  if (!files_ || !prefix.is_ready || !prefix.is_kept || prefix.is_saved || PrefixTree::is_branch_point(prefix)) {
    return false;
  }
  if (!is_worth_a_file(prefix)) return false;
  // A larger one would not be loaded: the memory for contexts limits what is read from the folder.
  if (prefix.statistics.rank_bytes_in_pages + prefix.state_bytes > options_.context_bytes) return false;
  const std::vector<std::string> keys = saved_prefix_keys(prefix.session.options(), prefix.tokens);
  return std::find(keys.begin(), keys.end(), prefix.key) != keys.end();
}

std::optional<BatchClock::time_point> PrefixStorage::next_save(Age other_age) const {
  std::optional<BatchClock::time_point> next;
  for (const PrefixPointer& prefix : tree_.all()) {
    if (!awaits_save(*prefix)) continue;
    const BatchClock::time_point due = prefix->is_context ? prefix->ready_at : prefix->ready_at + other_age;
    next = next ? std::min(*next, due) : due;
  }
  return next;
}

template <class Work>
auto PrefixStorage::start_thread(std::atomic<bool>& is_over, Work work) {
  struct End {
    RequestInbox& inbox;
    std::atomic<bool>& is_over;
    ~End() { inbox.end_work(is_over); }
  };
  auto result = std::async(std::launch::async | std::launch::deferred, [this, &is_over, work = std::move(work)] {
    const End end{inbox_, is_over};
    return work();
  });
  // If the system has no thread left, the work is deferred until its result is taken, which is then done at once.
  if (result.wait_for(std::chrono::seconds(0)) == std::future_status::deferred) is_over = true;
  return result;
}

void PrefixStorage::warn(const std::string& sentence) const {
  if (options_.on_warning) options_.on_warning(sentence);
}

PrefixStorage::Wait PrefixStorage::fetch_prefix(BatchJob& job, const std::function<bool(std::size_t)>& make_room) {
  const BatchRequest& request = job.request;
  if (!files_ || request.reuse == Reuse::kNone || request.context.empty()) return Wait::kNone;
  if (job.saved_prefixes && job.saved_prefixes->empty()) return Wait::kNone;
  if (tree_.find_pending(job.key, request.context)) return Wait::kNone;
  const std::int32_t n_cached = tree_.match_prefix(job.key, job.tokens).n_tokens;
  if (!job.saved_prefixes) {
    if (n_cached >= static_cast<std::int32_t>(request.context.size())) return Wait::kNone;
    if (!searching_) search(job, static_cast<std::size_t>(std::max(n_cached + 1, kLeastReused)));
    return Wait::kFile;
  }
  const std::size_t limit = engine_->memory().kv_bytes_limit;
  const auto bytes = [&](const SavedPrefix& file) {
    return loading_bytes(engine_->model()->info(), request.session, file.bytes);
  };
  std::erase_if(*job.saved_prefixes, [&](const SavedPrefix& file) {
    return file.n_tokens <= n_cached || (limit > 0 && bytes(file) > limit);
  });
  if (job.saved_prefixes->empty()) return Wait::kNone;
  if (loading_) return Wait::kFile;  // of this file or of another request's
  const SavedPrefix& longest = job.saved_prefixes->front();
  if (!make_room(bytes(longest))) return Wait::kRoom;
  load(longest, job, bytes(longest));
  return Wait::kFile;
}

void PrefixStorage::search(const BatchJob& job, std::size_t n_least) {
  auto next = std::make_unique<FileSearch>();
  next->job = job.id;
  next->found = start_thread(next->is_over, [this, key = job.key, context = job.request.context, n_least] {
    return files_->find(key, context, n_least);
  });
  searching_ = std::move(next);
}

void PrefixStorage::finish_search(JobQueue& waiting) {
  const std::unique_ptr<FileSearch> over = std::move(searching_);
  std::vector<SavedPrefix> found;
  try {
    found = over->found.get();
  } catch (const std::exception& error) {
    warn(std::string("could not search for saved contexts: ") + error.what());
  }
  for (const std::unique_ptr<BatchJob>& job : waiting) {
    if (job->id != over->job) continue;  // the job may have been cancelled
    job->saved_prefixes = std::move(found);
    return;
  }
}

void PrefixStorage::load(const SavedPrefix& file, const BatchJob& job, std::size_t bytes) {
  auto next = std::make_unique<FileLoad>();
  next->file = file;
  next->key = job.key;
  next->is_context = static_cast<std::size_t>(file.n_tokens) == job.request.context.size();
  next->bytes_reserved = bytes;
  next->session =
      start_thread(next->is_over, [this, &is_wanted = next->is_wanted, path = file.path,
                                   tokens = std::vector(job.tokens.begin(), job.tokens.begin() + file.n_tokens)] {
        return files_->load(path, tokens, is_wanted);
      });
  loading_ = std::move(next);
}

bool PrefixStorage::finish_load(JobQueue& waiting) {
  const std::unique_ptr<FileLoad> over = std::move(loading_);
  bool is_new = false;
  try {
    Session session = over->session.get();
    if (!over->is_wanted) return false;
    if (const PrefixPointer found = tree_.keep(over->key, std::move(session))) {
      found->is_context = over->is_context;
      found->is_saved = true;
      is_new = true;
    }
  } catch (const std::exception& error) {
    if (!over->is_wanted) return false;
    warn(PrefixFiles::passed_over(error));
  }
  // The file is not loaded a second time, whether or not it could be.
  for (const std::unique_ptr<BatchJob>& job : waiting) {
    if (job->saved_prefixes) {
      std::erase_if(*job->saved_prefixes, [&](const auto& file) { return file.path == over->file.path; });
    }
  }
  return is_new;
}

void PrefixStorage::drop_unwanted_load(const JobQueue& waiting) {
  if (!loading_) return;
  const bool is_wanted = std::any_of(waiting.begin(), waiting.end(), [&](const std::unique_ptr<BatchJob>& job) {
    return job->saved_prefixes &&
           std::any_of(job->saved_prefixes->begin(), job->saved_prefixes->end(),
                       [&](const SavedPrefix& file) { return file.path == loading_->file.path; });
  });
  if (!is_wanted) loading_->is_wanted = false;  // final: a request that comes now has it loaded anew
}

bool PrefixStorage::save_one(Age context_age, Age other_age) {
  // A save trims the folder by the files' times, so a touch that is under way ends first.
  if (saving_ || touching_) return true;
  const auto now = std::chrono::steady_clock::now();
  for (const PrefixPointer& prefix : tree_.all()) {
    if (prefix->ready_at > now - (prefix->is_context ? context_age : other_age) || !awaits_save(*prefix)) continue;
    prefix->is_saved = true;  // even if it fails, so that a full disk is not tried again and again
    prefix->is_saving = true;
    auto next = std::make_unique<FileSave>();
    next->prefix = prefix;
    next->result = start_thread(next->is_over, [this, kept = prefix.get()] { files_->save(kept->key, kept->session); });
    saving_ = std::move(next);
    return true;
  }
  return false;
}

void PrefixStorage::finish_save() {
  const std::unique_ptr<FileSave> over = std::move(saving_);
  over->prefix->is_saving = false;
  try {
    over->result.get();
  } catch (const std::exception& error) {
    warn(std::string("could not save a context: ") + error.what());
  }
}

void PrefixStorage::note_use(KeptPrefix& prefix) {
  const auto now = BatchClock::now();
  for (KeptPrefix* used = &prefix; files_ && used != nullptr; used = used->parent) {
    if (!used->is_saved || used->is_saving || (used->touched && now - *used->touched < kTouchEvery)) continue;
    used->touched = now;
    used_files_.push_back({.prefix = used->id, .path = files_->path_of(used->key, used->tokens)});
  }
}

bool PrefixStorage::touch_files() {
  if (touching_) return true;
  if (used_files_.empty()) return false;
  auto next = std::make_unique<FileTouch>();
  next->used = std::exchange(used_files_, {});
  next->gone = start_thread(next->is_over, [&used = next->used] {
    std::vector<std::uint64_t> gone;
    for (const FileTouch::Used& file : used) {
      if (!PrefixFiles::touch(file.path)) gone.push_back(file.prefix);
    }
    return gone;
  });
  touching_ = std::move(next);
  return true;
}

void PrefixStorage::finish_touch() {
  const std::unique_ptr<FileTouch> over = std::move(touching_);
  try {
    for (const std::uint64_t id : over->gone.get()) {
      for (const PrefixPointer& prefix : tree_.all()) {
        if (prefix->id == id) prefix->is_saved = false;  // it is saved again
      }
    }
  } catch (const std::exception& error) {
    warn(std::string("could not update the last-use time of saved contexts: ") + error.what());
  }
}

bool PrefixStorage::is_over() const {
  return (searching_ && searching_->is_over) || (loading_ && loading_->is_over) || (saving_ && saving_->is_over) ||
         (touching_ && touching_->is_over);
}

bool PrefixStorage::collect(JobQueue& waiting) {
  bool is_new = false;
  if (searching_ && searching_->is_over) finish_search(waiting);
  if (loading_ && loading_->is_over) is_new = finish_load(waiting);
  if (saving_ && saving_->is_over) finish_save();
  if (touching_ && touching_->is_over) finish_touch();
  return is_new;
}

void PrefixStorage::flush(JobQueue& waiting) {
  if (loading_) finish_load(waiting);
  while (touch_files()) finish_touch();
  while (save_one(Age{0}, Age{0})) finish_save();
}

}  // namespace winnow
