#include "batch/scheduler.h"

#include <algorithm>
#include <utility>

#include "batch/admission.h"
#include "batch/request_failure.h"

namespace winnow {
namespace {

// Fewer tokens take less time to be read again than a snapshot of them takes.
constexpr std::int32_t kLeastCopied = 64;
// If fewer tokens of a context are left to read, and it is not cut, they are read together with what follows.
constexpr std::int32_t kLeastApart = 128;

// Returns whether a request's context is read before its prompt, so that other requests can be forked from it. That is
// always so if it is cut by itself, and otherwise if it is long.
bool reads_apart(const BatchRequest& request, std::int32_t n_cached) {
  const std::int32_t n_left = static_cast<std::int32_t>(request.context.size()) - n_cached;
  return n_left > 0 && (request.session.eviction.evicts() || n_left >= kLeastApart);
}

BatchJob* find_job(const auto& jobs, std::uint64_t id) {
  const auto place =
      std::find_if(jobs.begin(), jobs.end(), [&](const std::unique_ptr<BatchJob>& job) { return job->id == id; });
  return place == jobs.end() ? nullptr : place->get();
}

// Takes a job out of a list and returns it; null if it is not there.
std::unique_ptr<BatchJob> take_job(auto& jobs, const BatchJob& job) {
  const auto place = std::find_if(jobs.begin(), jobs.end(),
                                  [&](const std::unique_ptr<BatchJob>& other) { return other.get() == &job; });
  if (place == jobs.end()) return nullptr;
  std::unique_ptr<BatchJob> taken = std::move(*place);
  jobs.erase(place);
  return taken;
}

}  // namespace

Scheduler::Scheduler(const std::shared_ptr<Engine>& engine, const BatchOptions& options, RequestInbox& inbox,
                     std::function<void(BatchJob&)> on_prompt_read)
    : engine_(*engine),
      options_(options),
      inbox_(inbox),
      on_prompt_read_(std::move(on_prompt_read)),
      cache_(engine, options, inbox),
      prefills_(*engine, *this, totals_) {}

void Scheduler::add(std::unique_ptr<BatchJob> owned) {
  ++totals_.requests;
  BatchJob& job = *owned;
  waiting_.push_back(std::move(owned));
  try {
    check_job(job, engine_, options_);
    job.result.started = true;
    if (job.callbacks.on_accept) job.callbacks.on_accept();
  } catch (...) {
    const auto [code, message] = failure_in_flight();
    job.result.started = false;
    fail(job, code, message);
  }
}

void Scheduler::add_unchecked(JobQueue jobs) {
  for (std::unique_ptr<BatchJob>& job : jobs) waiting_.push_back(std::move(job));
}

void Scheduler::cancel(const std::vector<std::uint64_t>& ids) {
  for (const std::uint64_t id : ids) {
    BatchJob* job = find_running(id);
    if (job == nullptr) job = find_job(waiting_, id);
    if (job != nullptr) finish(*job, FinishReason::kCancelled);
  }
}

BatchJob* Scheduler::find_running(std::uint64_t id) const { return find_job(running_, id); }

bool Scheduler::is_idle() const {
  const PrefixStorage& storage = cache_.storage();
  return running_.empty() &&
         (waiting_.empty() || storage.is_searching() || storage.is_loading() || storage.is_saving());
}

std::size_t Scheduler::bytes_reserved() const {
  std::size_t sum = cache_.bytes_reserved();
  for (const std::unique_ptr<BatchJob>& job : running_) sum += job->bytes_reserved;
  return sum;
}

int Scheduler::n_answers() const {
  int n = 0;
  for (const std::unique_ptr<BatchJob>& job : running_) n += job->request.n_answers;
  return n;
}

// Removes cached prefixes until this many bytes can be reserved, and none if that would not be enough. Returns whether
// they can.
bool Scheduler::make_room(std::size_t bytes) {
  const std::size_t limit = engine_.memory().kv_bytes_limit;
  if (limit == 0) return true;
  if (bytes_reserved() - cache_.tree().bytes_removable() + bytes > limit) return false;
  while (bytes_reserved() + bytes > limit) {
    if (!cache_.tree().remove_one()) return false;
    has_changed_ = true;
  }
  return true;
}

void Scheduler::admit() {
  PrefixTree& tree = cache_.tree();
  for (auto place = waiting_.begin(); place != waiting_.end();) {
    BatchJob& next = **place;
    const BatchRequest& request = next.request;
    if (n_answers() + request.n_answers > options_.n_parallel) return;
    const PrefixStorage::Wait wait =
        cache_.storage().fetch_prefix(next, [this](std::size_t bytes) { return make_room(bytes); });
    if (wait == PrefixStorage::Wait::kRoom) return;
    if (wait == PrefixStorage::Wait::kFile) {
      ++place;  // the requests after it go on
      continue;
    }
    PrefixTree::Match match = cache_.match_prefix(next);
    MemoryNeeds needs = next.needs;
    if (match.prefix) {
      const std::size_t limit = engine_.memory().kv_bytes_limit;
      const std::size_t page_bytes = match.prefix->statistics.rank_bytes_in_pages;
      needs = needs_after(request, engine_, {.n_tokens = match.n_tokens, .page_bytes = page_bytes});
      if (limit > 0 && page_bytes + match.prefix->state_bytes + needs.context + needs.own > limit) {
        match = {};  // the prefix does not fit into memory together with the request
        needs = next.needs;
      }
    }
    const bool waits = needs.context > 0 && cache_.find_pending_context(next) != nullptr;
    if (waits) needs.context = 0;  // the request that reads the context has reserved it
    if (!waits && !reads_apart(request, match.n_tokens)) needs = {.own = needs.context + needs.own};
    if (match.prefix) tree.acquire(*match.prefix);
    if (!make_room(needs.context + needs.own)) {
      if (match.prefix) tree.release(*match.prefix);
      return;
    }
    std::unique_ptr<BatchJob> job = std::move(*place);
    place = waiting_.erase(place);
    inbox_.note_admitted();
    start(std::move(job), match, needs);
  }
}

void Scheduler::start(std::unique_ptr<BatchJob> owned, const PrefixTree::Match& match, const MemoryNeeds& needs) {
  PrefixTree& tree = cache_.tree();
  running_.push_back(std::move(owned));
  BatchJob& job = *running_.back();
  const BatchRequest& request = job.request;
  has_changed_ = true;
  job.bytes_reserved = needs.own;
  job.admitted = BatchClock::now();
  job.result.queue_s = seconds_between(job.submitted, job.admitted);
  job.prefix = match.prefix;
  job.n_cached_tokens = match.n_tokens;
  // A sequence that cannot be truncated to where this one branches off is no hit. In this case this one leaves a
  // snapshot there for later requests.
  const bool branches = match.n_common >= match.n_tokens + kLeastCopied && !request.session.eviction.evicts();
  job.snapshot_at = branches && match.n_common < static_cast<std::int32_t>(job.tokens.size()) ? match.n_common : 0;
  try {
    const auto n_context = static_cast<std::int32_t>(request.context.size());
    PrefixPointer context = n_context > match.n_tokens ? cache_.find_pending_context(job) : nullptr;
    if (context) {
      if (job.prefix) tree.release(*std::exchange(job.prefix, nullptr));
      job.prefix = context;
      job.n_cached_tokens = n_context;
      tree.acquire(*context);
    }
    const bool is_hit = job.prefix != nullptr;
    ++(is_hit ? totals_.context_hits : totals_.context_misses);
    if (is_hit) {
      ++job.prefix->n_hits;
      cache_.storage().note_use(*job.prefix);
      job.prefix->is_kept |= cache_.keeps(job);
      job.result.cached_tokens = job.n_cached_tokens;
      totals_.cached_tokens += job.n_cached_tokens;
    }
    if (context) return;  // finish_part starts this one's own part
    if (job.prefix && cache_.keeps(job) && job.n_cached_tokens < static_cast<std::int32_t>(job.prefix->tokens.size())) {
      const PrefixPointer point = tree.branch(*job.prefix, job.n_cached_tokens);
      tree.acquire(*point);
      tree.release(*std::exchange(job.prefix, point));
    }
    if (!reads_apart(request, match.n_tokens)) return start_own_part(job);
    Session session = open_session(job);
    context = tree.add_pending(job.key, request.context, std::move(session), std::exchange(job.prefix, nullptr),
                               needs.context, cache_.keeps(job));
    context->snapshot_at = job.snapshot_at < n_context ? job.snapshot_at : 0;
    job.prefix = context;
    job.n_cached_tokens = n_context;
    tree.acquire(*context);
    prefills_.start_part(context);
  } catch (...) {
    const auto [code, message] = failure_in_flight();
    fail(job, code, message);
  }
}

Session Scheduler::open_session(const BatchJob& job) const {
  if (!job.prefix) return engine_.open(job.request.session);
  Session session = job.prefix->session.fork();
  session.truncate(job.n_cached_tokens);
  return session;
}

void Scheduler::start_own_part(BatchJob& job) {
  job.session.emplace(open_session(job));
  continue_prefill(job);
}

void Scheduler::continue_prefill(BatchJob& job) {
  if (prefills_.start_part(job)) return;
  if (job.embedding) return finish_embedding(job);
  has_changed_ = true;
  on_prompt_read_(job);
}

void Scheduler::finish_embedding(BatchJob& job) {
  job.result.cache = job.session->statistics();
  job.first_token = BatchClock::now();
  job.result.prefill_s = seconds_between(job.admitted, job.first_token);
  job.result.embedding = job.embedding->pooled();
  finish(job, FinishReason::kEndOfText);
}

void Scheduler::keep_prompt(BatchJob& job) {
  if (!cache_.keep_prompt(job)) return;
  // The prefix reserves its pages from here on. If they are not written to again, the job reserves only what follows.
  const bool is_whole = job.session->n_tokens() == static_cast<std::int32_t>(job.tokens.size());
  if (is_whole && job.request.session.decode_cut == SessionOptions::DecodeCut::kKeep) {
    job.bytes_reserved = needs_after(job.request, engine_, {.n_tokens = job.session->n_tokens()}).own;
  }
  make_room(0);
  cache_.tree().trim();
  has_changed_ = true;
}

std::vector<BatchJob*> Scheduler::users_of(const KeptPrefix& context) const {
  std::vector<BatchJob*> users;
  for (const std::unique_ptr<BatchJob>& job : running_) {
    if (job->prefix.get() == &context) users.push_back(job.get());
  }
  return users;
}

void Scheduler::note_slice(ScheduledPrefill& scheduled) {
  const auto now = BatchClock::now();
  if (!options_.on_reading || seconds_between(scheduled.reported, now) < options_.between_readings_s) return;
  scheduled.reported = now;
  BatchReadingProgress progress{.n_tokens = scheduled.n_tokens, .seconds = seconds_between(scheduled.started, now)};
  if (const auto* context = std::get_if<PrefixPointer>(&scheduled.owner)) {
    const std::vector<BatchJob*> users = users_of(**context);
    if (!users.empty()) progress.request = users.front()->id;
  } else {
    progress.request = std::get<BatchJob*>(scheduled.owner)->id;
  }
  progress.share =
      static_cast<double>(scheduled.prefill.work_done()) / static_cast<double>(scheduled.prefill.work_total());
  options_.on_reading(progress);
}

void Scheduler::finish_part(BatchJob* job) {
  keep_prompt(*job);
  continue_prefill(*job);
}

void Scheduler::finish_part(const PrefixPointer& context) {
  PrefixTree& tree = cache_.tree();
  has_changed_ = true;
  if (context->session.n_tokens() < static_cast<std::int32_t>(context->tokens.size())) {
    if (context->is_kept) tree.keep(context->key, context->session.fork());
    return prefills_.start_part(context);
  }
  tree.set_ready(context);
  tree.trim();
  for (BatchJob* job : users_of(*context)) {
    try {
      start_own_part(*job);
    } catch (...) {
      const auto [code, message] = failure_in_flight();
      fail(*job, code, message);
    }
  }
}

void Scheduler::fail_part(BatchJob* job, ErrorCode code, const std::string& message) { fail(*job, code, message); }

void Scheduler::fail_part(const PrefixPointer& context, ErrorCode code, const std::string& message) {
  context->is_kept = false;
  for (BatchJob* user : users_of(*context)) fail(*user, code, message);
}

void Scheduler::fail(BatchJob& job, ErrorCode code, const std::string& message) {
  job.result.error_code = code;
  job.result.error = message;
  finish(job, FinishReason::kError);
}

void Scheduler::notify(const std::function<void()>& callback) const {
  try {
    callback();
  } catch (...) {
    const std::string message = "a callback at the end of an answer failed: " + failure_in_flight().message;
    if (options_.on_warning) options_.on_warning(message);
  }
}

void Scheduler::finish(BatchJob& job, FinishReason reason) {
  PrefixTree& tree = cache_.tree();
  has_changed_ = true;
  std::unique_ptr<BatchJob> owned = take_job(waiting_, job);
  const bool was_waiting = owned != nullptr;
  if (was_waiting) {
    cache_.storage().drop_unwanted_load(waiting_);
  } else {
    owned = take_job(running_, job);
  }
  // The pages are freed before the client is notified. A prefill is destroyed before its session.
  prefills_.stop(&job);
  job.answers.clear();
  job.session.reset();
  if (const PrefixPointer prefix = std::exchange(job.prefix, nullptr)) {
    if (prefix->n_users == 1 && !prefix->is_ready) prefills_.stop(prefix);
    tree.release(*prefix);
    tree.trim();
  }
  job.result.reason = reason;
  if (job.first_token != BatchClock::time_point{}) {
    job.result.decode_s = seconds_between(job.first_token, BatchClock::now());
  }
  totals_.cancelled += reason == FinishReason::kCancelled;
  totals_.failed += reason == FinishReason::kError;
  totals_.finished += reason != FinishReason::kCancelled && reason != FinishReason::kError;
  publish();
  const std::uint64_t id = job.id;
  notify([&] {
    if (job.callbacks.on_done) job.callbacks.on_done(job.result);
  });
  owned.reset();  // the callbacks are destroyed before drain() returns
  inbox_.note_done(id, was_waiting);
}

void Scheduler::finish_all(FinishReason reason) {
  while (!running_.empty()) finish(*running_.front(), reason);
  while (!waiting_.empty()) finish(*waiting_.front(), reason);
}

void Scheduler::fail_all(ErrorCode code, const std::string& message) {
  while (!running_.empty()) fail(*running_.front(), code, message);
  while (!waiting_.empty()) fail(*waiting_.front(), code, message);
}

void Scheduler::publish() {
  BatchStatistics now = totals_;
  for (const std::unique_ptr<BatchJob>& job : running_) {
    now.n_answering += static_cast<int>(job->answers.size());
    now.n_reading += job->answers.empty();
  }
  now.bytes_reserved = bytes_reserved();
  now.context_bytes = cache_.tree().bytes_in_pool();
  now.contexts_removed = cache_.tree().n_removed();
  inbox_.publish(now, has_changed_ ? std::optional(entries()) : std::nullopt);
  has_changed_ = false;
}

std::vector<BatchEntry> Scheduler::entries() const {
  std::vector<BatchEntry> entries;
  for (const PrefixPointer& context : cache_.tree().all()) {
    const SessionOptions& of = context->session.options();
    entries.push_back({.kind = BatchEntry::Kind::kContext,
                       .id = context->id,
                       .parent = context->parent == nullptr ? 0 : context->parent->id,
                       .is_context = context->is_context,
                       .state = context->is_ready ? "kept" : "reading",
                       .method = of.eviction.text(),
                       .budget = of.budget ? of.budget->text() : "",
                       .n_tokens = static_cast<std::int32_t>(context->tokens.size()),
                       .n_users = context->n_users,
                       .hits = context->n_hits,
                       .cache = context->statistics,
                       .bytes_reserved = context->bytes()});
  }
  for (const std::unique_ptr<BatchJob>& job : running_) {
    entries.push_back({.kind = BatchEntry::Kind::kRequest,
                       .id = job->id,
                       .state = job->answers.empty() ? "reading" : "answering",
                       .method = job->result.method,
                       .budget = job->result.budget,
                       .n_tokens = job->result.prompt_tokens,
                       .cache = job->result.cache,
                       .bytes_reserved = job->bytes_reserved});
  }
  return entries;
}

}  // namespace winnow
