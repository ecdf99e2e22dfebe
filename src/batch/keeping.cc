// What of a request stays for later ones: in memory, and in the folder for saved contexts.
#include <algorithm>
#include <chrono>
#include <future>
#include <string>
#include <utility>
#include <vector>

#include "batch/batch_impl.h"
#include "batch/prefix_key.h"

namespace winnow {
namespace {

// Fewer tokens cost less to read again than to keep.
constexpr std::int32_t kLeastKept = 32;
// What is used all the time need not say so more often.
constexpr std::chrono::minutes kTouchEvery{1};

}  // namespace

bool Batch::Impl::keeps(const BatchJob& job) const {
  return job.request.keep && job.request.reuse != Reuse::kNone && options.context_bytes > 0;
}

void Batch::Impl::keep_prompt(BatchJob& job) {
  if (!keeps(job) || job.session->n_tokens() < kLeastKept) return;
  const PrefixPointer kept = tree.add(job.key, job.session->fork(), true);
  if (!kept) return;
  // Its pages are promised with it from here on, where nothing writes to them.
  tree.acquire(*kept);
  if (const PrefixPointer before = std::exchange(job.prefix, kept)) tree.release(*before);
  const bool is_whole = job.session->n_tokens() == static_cast<std::int32_t>(job.tokens.size());
  if (is_whole && job.request.session.decode_cut == SessionOptions::DecodeCut::kKeep) {
    job.bytes_reserved = needs_after(job.request, *engine, {.n_tokens = job.session->n_tokens()}).own;
  }
  make_room(0);
  tree.trim();
  has_changed = true;
}

void Batch::Impl::keep_answer(const BatchJob& job, Session session) {
  if (!keeps(job) || session.n_tokens() < kLeastKept) return;
  tree.add(job.key, std::move(session), true);
  tree.trim();
}

void Batch::Impl::restore() {
  std::vector<RestoredPrefix> saved;
  files->restore(saved_prefix_keys, [&](RestoredPrefix prefix) {
    const PrefixPointer added = tree.add(prefix.key, std::move(prefix.session), true);
    if (added && tree.bytes_kept() > options.context_bytes) {
      tree.remove(*added);  // it and the rest come when they are asked for
      return false;
    }
    if (added) added->is_saved = true;
    return true;
  });
  // The newest came first, and is to be the one used last.
  const std::vector<PrefixPointer> restored(tree.all().begin(), tree.all().end());
  for (auto prefix = restored.rbegin(); prefix != restored.rend(); ++prefix) {
    tree.acquire(**prefix);
    tree.release(**prefix);
  }
}

namespace {

// Returns whether a file of its own has something that the files of those which continue it have not. They have all of
// it where they can be cut back to it. Where they cannot (windows that have moved on, recurrent layers, a cut), it is
// what others begin with from where they part; in the middle of one conversation nobody does.
bool is_worth_a_file(const KeptPrefix& prefix) {
  if (prefix.is_context || prefix.children.empty()) return true;
  const auto n_tokens = static_cast<std::int32_t>(prefix.tokens.size());
  return prefix.children.size() > 1 && std::ranges::none_of(prefix.children, [&](const KeptPrefix* below) {
           return below->session.truncatable(n_tokens) > 0;
         });
}

}  // namespace

bool Batch::Impl::awaits_save(const KeptPrefix& prefix) const {
  if (!files || !prefix.is_ready || !prefix.is_kept || prefix.is_saved || PrefixTree::is_branch_point(prefix))
    return false;
  if (!is_worth_a_file(prefix)) return false;
  const std::vector<std::string> keys = saved_prefix_keys(prefix.session.options(), prefix.tokens);
  return std::find(keys.begin(), keys.end(), prefix.key) != keys.end();
}

std::optional<BatchClock::time_point> Batch::Impl::next_save(std::chrono::steady_clock::duration other_age) const {
  std::optional<BatchClock::time_point> next;
  for (const PrefixPointer& prefix : tree.all()) {
    if (!awaits_save(*prefix)) continue;
    const BatchClock::time_point due = prefix->is_context ? prefix->ready_at : prefix->ready_at + other_age;
    next = next ? std::min(*next, due) : due;
  }
  return next;
}

template <class Work>
auto Batch::Impl::beside(std::atomic<bool>& is_over, Work work) {
  struct End {
    Impl& impl;
    std::atomic<bool>& is_over;
    ~End() {
      const std::lock_guard lock(impl.mutex);
      is_over = true;
      impl.wake.notify_all();
    }
  };
  auto result = std::async(std::launch::async | std::launch::deferred, [this, &is_over, work = std::move(work)] {
    const End end{*this, is_over};
    return work();
  });
  // Where there is no thread to be had it is done when the result is taken: at once.
  if (result.wait_for(std::chrono::seconds(0)) == std::future_status::deferred) is_over = true;
  return result;
}

void Batch::Impl::warn(const std::string& sentence) const {
  if (options.on_warning) options.on_warning(sentence);
}

Batch::Impl::FileWait Batch::Impl::wait_for_file(BatchJob& job) {
  const BatchRequest& request = job.request;
  if (!files || request.reuse == Reuse::kNone || request.context.empty()) return FileWait::kNone;
  if (job.saved_prefixes && job.saved_prefixes->empty()) return FileWait::kNone;
  if (find_pending_context(job)) return FileWait::kNone;
  const std::int32_t n_there = tree.match_prefix(job.key, job.tokens).n_tokens;
  if (!job.saved_prefixes) {
    if (n_there >= static_cast<std::int32_t>(request.context.size())) return FileWait::kNone;
    if (!searching) search(job, static_cast<std::size_t>(std::max(n_there + 1, kLeastReused)));
    return FileWait::kFile;
  }
  const std::size_t limit = engine->memory().kv_bytes_limit;
  const auto bytes = [&](const SavedPrefix& file) {
    return loading_bytes(engine->model()->info(), request.session, file.bytes);
  };
  std::erase_if(*job.saved_prefixes, [&](const SavedPrefix& file) {
    return file.n_tokens <= n_there || (limit > 0 && bytes(file) > limit);
  });
  if (job.saved_prefixes->empty()) return FileWait::kNone;
  if (loading) return FileWait::kFile;  // this one, or the next
  const SavedPrefix& longest = job.saved_prefixes->front();
  if (!make_room(bytes(longest))) return FileWait::kRoom;
  load(longest, job, bytes(longest));
  return FileWait::kFile;
}

void Batch::Impl::search(const BatchJob& job, std::size_t n_least) {
  auto next = std::make_unique<FileSearch>();
  next->job = job.id;
  next->found = beside(next->is_over, [this, key = job.key, context = job.request.context, n_least] {
    return files->find(key, context, n_least);
  });
  searching = std::move(next);
}

void Batch::Impl::finish_search() {
  const std::unique_ptr<FileSearch> over = std::move(searching);
  std::vector<SavedPrefix> found;
  try {
    found = over->found.get();
  } catch (const std::exception& error) {
    warn(std::string("saved contexts could not be looked for: ") + error.what());
  }
  for (const std::unique_ptr<BatchJob>& job : waiting) {
    if (job->id == over->job) job->saved_prefixes = std::move(found);  // else it has been cancelled
  }
}

void Batch::Impl::load(const SavedPrefix& file, const BatchJob& job, std::size_t bytes) {
  auto next = std::make_unique<FileLoad>();
  next->file = file;
  next->key = job.key;
  next->is_context = static_cast<std::size_t>(file.n_tokens) == job.request.context.size();
  next->bytes_reserved = bytes;
  next->session = beside(next->is_over, [this, &is_wanted = next->is_wanted, path = file.path,
                                         tokens = std::vector(job.tokens.begin(), job.tokens.begin() + file.n_tokens)] {
    return files->load(path, tokens, is_wanted);
  });
  loading = std::move(next);
}

void Batch::Impl::finish_load() {
  const std::unique_ptr<FileLoad> over = std::move(loading);
  try {
    Session session = over->session.get();
    if (!over->is_wanted) return;
    if (const PrefixPointer found = tree.add(over->key, std::move(session), true)) {
      found->is_context = over->is_context;
      found->is_saved = true;
      has_changed = true;
    }
  } catch (const std::exception& error) {
    if (!over->is_wanted) return;
    warn(PrefixFiles::passed_over(error));
  }
  // Whatever has come of it, nobody tries it again.
  for (const std::unique_ptr<BatchJob>& job : waiting) {
    if (job->saved_prefixes)
      std::erase_if(*job->saved_prefixes, [&](const auto& file) { return file.path == over->file.path; });
  }
}

void Batch::Impl::drop_unwanted_load() {
  if (!loading) return;
  const bool is_wanted = std::any_of(waiting.begin(), waiting.end(), [&](const std::unique_ptr<BatchJob>& job) {
    return job->saved_prefixes && std::any_of(job->saved_prefixes->begin(), job->saved_prefixes->end(),
                                              [&](const SavedPrefix& file) { return file.path == loading->file.path; });
  });
  if (!is_wanted) loading->is_wanted = false;  // for good: who comes now has it loaded anew
}

bool Batch::Impl::save_one(std::chrono::steady_clock::duration context_age,
                           std::chrono::steady_clock::duration other_age) {
  // Which file goes first is decided by their times.
  if (saving || touching) return true;
  const auto now = std::chrono::steady_clock::now();
  for (const PrefixPointer& prefix : tree.all()) {
    if (prefix->ready_at > now - (prefix->is_context ? context_age : other_age) || !awaits_save(*prefix)) continue;
    prefix->is_saved = true;  // also where it fails: a full disk is not asked again and again
    prefix->is_saving = true;
    auto next = std::make_unique<FileSave>();
    next->prefix = prefix;
    next->result = beside(next->is_over, [this, kept = prefix.get()] { files->save(kept->key, kept->session); });
    saving = std::move(next);
    return true;
  }
  return false;
}

void Batch::Impl::finish_save() {
  const std::unique_ptr<FileSave> over = std::move(saving);
  over->prefix->is_saving = false;
  try {
    over->result.get();
  } catch (const std::exception& error) {
    warn(std::string("a context could not be saved: ") + error.what());
  }
}

void Batch::Impl::note_use(KeptPrefix& prefix) {
  const auto now = BatchClock::now();
  for (KeptPrefix* used = &prefix; files && used != nullptr; used = used->parent) {
    if (!used->is_saved || used->is_saving || (used->touched && now - *used->touched < kTouchEvery)) continue;
    used->touched = now;
    used_files.push_back({.prefix = used->id, .path = files->path_of(used->key, used->tokens)});
  }
}

bool Batch::Impl::touch_files() {
  if (touching) return true;
  if (used_files.empty()) return false;
  auto next = std::make_unique<FileTouch>();
  next->used = std::exchange(used_files, {});
  next->gone = beside(next->is_over, [&used = next->used] {
    std::vector<std::uint64_t> gone;
    for (const FileTouch::Used& file : used) {
      if (!PrefixFiles::touch(file.path)) gone.push_back(file.prefix);
    }
    return gone;
  });
  touching = std::move(next);
  return true;
}

void Batch::Impl::finish_touch() {
  const std::unique_ptr<FileTouch> over = std::move(touching);
  try {
    for (const std::uint64_t id : over->gone.get()) {
      for (const PrefixPointer& prefix : tree.all()) {
        if (prefix->id == id) prefix->is_saved = false;  // it is saved again
      }
    }
  } catch (const std::exception& error) {
    warn(std::string("could not update the last-use time of saved contexts: ") + error.what());
  }
}

}  // namespace winnow
