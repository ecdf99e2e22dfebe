// The batch's thread: who comes next, and when.
#include <algorithm>
#include <utility>

#include "batch/batch_impl.h"
#include "batch/prefix_key.h"
#include "engine/engine_impl.h"

namespace winnow {
namespace {

// A reading keeps its turn for so long: every change of layer or prompt converts a layer's weights anew.
constexpr double kTurnSeconds = 0.05;
// While nobody waits for tokens, so long between two looks at what others want.
constexpr double kIdleReadSeconds = 0.02;
// A busy batch saves a context after this time, an idle one at once.
constexpr std::chrono::seconds kAtOnce{0}, kLatestSave{2};
// Fewer tokens are read again sooner than another copy is made.
constexpr std::int32_t kLeastCopied = 64;
// Fewer tokens of a context that is not cut are read together with what follows it.
constexpr std::int32_t kLeastApart = 128;

// What may soon go on is left alone for so long before it is saved.
BatchClock::duration conversation_age(const BatchOptions& options) {
  return std::chrono::duration_cast<BatchClock::duration>(std::chrono::duration<double>(options.save_after_s));
}

}  // namespace

void Batch::Impl::run() {
  try {
    work();
  } catch (const PipelineError& error) {
    // No engine of these ranks can go on: whoever waits hears why, and nobody is taken any more.
    {
      const std::lock_guard lock(mutex);
      is_draining = true;
      for (std::unique_ptr<BatchJob>& job : incoming) waiting.push_back(std::move(job));
      incoming.clear();
    }
    while (!running.empty()) fail(*running.front(), error.code(), error.what());
    while (!waiting.empty()) fail(*waiting.front(), error.code(), error.what());
  }
}

void Batch::Impl::work() {
  while (receive()) {
    if (searching && searching->is_over) finish_search();
    if (loading && loading->is_over) finish_load();
    if (saving && saving->is_over) finish_save();
    if (touching && touching->is_over) finish_touch();
    admit();
    touch_files();
    const double seconds = step();
    if (!prefills.empty()) read(seconds > 0 ? seconds * options.prefill_share : kIdleReadSeconds);
    save_one(running.empty() ? kAtOnce : kLatestSave, conversation_age(options));
    publish();
  }
  // Those that are left hear of their end.
  while (!running.empty()) finish(*running.front(), FinishReason::kCancelled);
  while (!waiting.empty()) finish(*waiting.front(), FinishReason::kCancelled);
  while (!steps.empty()) finish_step();
  if (loading) finish_load();  // dropped with the last of those that waited for it
  while (touch_files()) finish_touch();
  while (save_one(kAtOnce, kAtOnce)) finish_save();
}

bool Batch::Impl::receive() {
  std::deque<std::unique_ptr<BatchJob>> arrived;
  std::vector<std::uint64_t> ids;
  {
    std::unique_lock lock(mutex);
    const auto has_news = [&] { return is_stopping || !incoming.empty() || !cancelled.empty() || is_file_over(); };
    // Those in the queue wait for a file, or for the room that one of them holds.
    if (running.empty() && (waiting.empty() || searching || loading || saving) && !has_news()) {
      lock.unlock();
      std::optional<BatchClock::time_point> due;
      // A search is over in no time.
      if (!searching && !save_one(kAtOnce, conversation_age(options))) {
        due = next_save(conversation_age(options));
        if (loading) {
          engine->impl().release_step();
        } else {
          engine->impl().rest();
        }
      }
      lock.lock();
      turn_begin.reset();
      if (due) {
        wake.wait_until(lock, *due, has_news);
      } else {
        wake.wait(lock, has_news);
      }
    }
    turn_begin = BatchClock::now();
    arrived.swap(incoming);
    ids.swap(cancelled);
    if (is_stopping) {
      for (std::unique_ptr<BatchJob>& job : arrived) waiting.push_back(std::move(job));
      return false;
    }
  }
  for (std::unique_ptr<BatchJob>& job : arrived) accept(std::move(job));
  if (!ids.empty()) cancel_jobs(ids);
  return true;
}

void Batch::Impl::accept(std::unique_ptr<BatchJob> job) {
  ++totals.requests;
  BatchJob& self = *job;
  waiting.push_back(std::move(job));
  try {
    check_job(self, *engine, options);
    self.result.started = true;
    if (self.callbacks.on_accept) self.callbacks.on_accept();
  } catch (const Error& error) {
    self.result.started = false;
    fail(self, error.code(), error.what());
  } catch (const std::exception& error) {
    self.result.started = false;
    fail(self, ErrorCode::kInternal, error.what());
  }
}

void Batch::Impl::cancel_jobs(const std::vector<std::uint64_t>& ids) {
  for (const std::uint64_t id : ids) {
    BatchJob* job = nullptr;
    for (const std::unique_ptr<BatchJob>& other : running) job = other->id == id ? other.get() : job;
    for (const std::unique_ptr<BatchJob>& other : waiting) job = other->id == id ? other.get() : job;
    if (job != nullptr) finish(*job, FinishReason::kCancelled);
  }
}

std::size_t Batch::Impl::bytes_reserved() const {
  std::size_t sum = tree.bytes() + (loading ? loading->bytes_reserved : 0);
  for (const std::unique_ptr<BatchJob>& job : running) sum += job->bytes_reserved;
  return sum;
}

int Batch::Impl::n_answers() const {
  int n = 0;
  for (const std::unique_ptr<BatchJob>& job : running) n += job->request.n_answers;
  return n;
}

namespace {

// Whether a request's context is read before its prompt, so that others can begin with it: always where it is cut by
// itself, and where it is long.
bool reads_apart(const BatchRequest& request, std::int32_t n_cached) {
  const std::int32_t n_left = static_cast<std::int32_t>(request.context.size()) - n_cached;
  return n_left > 0 && (request.session.eviction.evicts() || n_left >= kLeastApart);
}

// The next part to read of a sequence, up to the snapshot or to its end.
std::span<const Token> next_part(std::span<const Token> tokens, std::int32_t n_read, std::int32_t snapshot_at) {
  const auto n = static_cast<std::size_t>(n_read);
  const std::size_t end = snapshot_at > n_read ? static_cast<std::size_t>(snapshot_at) : tokens.size();
  return tokens.subspan(n, end - n);
}

}  // namespace

PrefixPointer Batch::Impl::find_pending_context(const BatchJob& job) const {
  const BatchRequest& request = job.request;
  return request.reuse == Reuse::kNone ? nullptr : tree.find_pending(job.key, request.context);
}

bool Batch::Impl::make_room(std::size_t bytes) {
  const std::size_t limit = engine->memory().kv_bytes_limit;
  if (limit == 0) return true;
  while (bytes_reserved() + bytes > limit) {
    if (!tree.remove_one()) return false;
    has_changed = true;
  }
  return true;
}

PrefixTree::Match Batch::Impl::match_prefix(const BatchJob& job) const {
  const BatchRequest& request = job.request;
  if (request.reuse == Reuse::kNone) return {};
  PrefixTree::Match match = tree.match_prefix(job.key, scores_prompt(request) ? request.context : job.tokens);
  if (match.n_tokens < kLeastReused) match = {.n_common = match.n_common};
  if (request.session.eviction.evicts() && !continues(request)) {
    const auto n_context = static_cast<std::int32_t>(request.context.size());
    const auto n_least = n_context > 0 ? n_context : static_cast<std::int32_t>(job.tokens.size());
    if (match.n_tokens < n_least) return {};
  }
  return match;
}

void Batch::Impl::admit() {
  for (auto place = waiting.begin(); place != waiting.end();) {
    BatchJob& next = **place;
    const BatchRequest& request = next.request;
    if (n_answers() + request.n_answers > options.n_parallel) return;
    const FileWait wait = wait_for_file(next);
    if (wait == FileWait::kRoom) return;
    if (wait == FileWait::kFile) {
      ++place;  // those behind it go on
      continue;
    }
    PrefixTree::Match match = match_prefix(next);
    MemoryNeeds needs = next.needs;
    if (match.prefix) {
      const std::size_t limit = engine->memory().kv_bytes_limit;
      const std::size_t page_bytes = match.prefix->statistics.rank_bytes_in_pages;
      needs = needs_after(request, *engine, {.n_tokens = match.n_tokens, .page_bytes = page_bytes});
      if (limit > 0 && page_bytes + match.prefix->state_bytes + needs.context + needs.own > limit) {
        match = {};  // it cannot be kept beside what the request takes
        needs = next.needs;
      }
    }
    const bool waits = needs.context > 0 && find_pending_context(next) != nullptr;
    if (waits) needs.context = 0;  // promised to who reads it
    if (!waits && !reads_apart(request, match.n_tokens)) needs = {.own = needs.context + needs.own};
    if (match.prefix) tree.acquire(*match.prefix);
    if (!make_room(needs.context + needs.own)) {
      if (match.prefix) tree.release(*match.prefix);
      return;
    }
    std::unique_ptr<BatchJob> job = std::move(*place);
    place = waiting.erase(place);
    {
      const std::lock_guard lock(mutex);
      --n_waiting;
    }
    start(std::move(job), match, needs);
  }
}

void Batch::Impl::start(std::unique_ptr<BatchJob> owned, const PrefixTree::Match& match, const MemoryNeeds& needs) {
  running.push_back(std::move(owned));
  BatchJob& job = *running.back();
  const BatchRequest& request = job.request;
  has_changed = true;
  job.bytes_reserved = needs.own;
  job.admitted = BatchClock::now();
  job.result.queue_s = seconds_between(job.submitted, job.admitted);
  job.prefix = match.prefix;
  job.n_cached_tokens = match.n_tokens;
  // Where a sequence cannot be cut back, one that shares its beginning leaves a copy where they part: for the next.
  const bool parts = match.n_common >= match.n_tokens + kLeastCopied && !request.session.eviction.evicts();
  job.snapshot_at = parts && match.n_common < static_cast<std::int32_t>(job.tokens.size()) ? match.n_common : 0;
  try {
    const auto n_context = static_cast<std::int32_t>(request.context.size());
    PrefixPointer context = n_context > match.n_tokens ? find_pending_context(job) : nullptr;
    if (context) {
      if (job.prefix) tree.release(*std::exchange(job.prefix, nullptr));
      job.prefix = context;
      job.n_cached_tokens = n_context;
      tree.acquire(*context);
    }
    const bool is_hit = job.prefix != nullptr;
    ++(is_hit ? totals.context_hits : totals.context_misses);
    if (is_hit) {
      ++job.prefix->n_hits;
      note_use(*job.prefix);
      job.prefix->is_kept |= keeps(job);
      job.result.cached_tokens = job.n_cached_tokens;
      totals.cached_tokens += job.n_cached_tokens;
    }
    if (context) return;  // whoever reads it starts this one's own part
    if (job.prefix && keeps(job) && job.n_cached_tokens < static_cast<std::int32_t>(job.prefix->tokens.size())) {
      const PrefixPointer point = tree.branch(*job.prefix, job.n_cached_tokens);
      tree.acquire(*point);
      tree.release(*std::exchange(job.prefix, point));
    }
    if (!reads_apart(request, match.n_tokens)) return start_own_part(job);
    Session session = open_session(job);
    context = tree.add_pending(job.key, request.context, std::move(session), std::exchange(job.prefix, nullptr),
                               needs.context, keeps(job));
    context->snapshot_at = job.snapshot_at < n_context ? job.snapshot_at : 0;
    job.prefix = context;
    job.n_cached_tokens = n_context;
    tree.acquire(*context);
    read_on(context);
  } catch (const Error& error) {
    fail(job, error.code(), error.what());
  } catch (const std::exception& error) {
    fail(job, ErrorCode::kInternal, error.what());
  }
}

Session Batch::Impl::open_session(const BatchJob& job) const {
  if (!job.prefix) return engine->open(job.request.session);
  Session session = job.prefix->session.fork();
  session.truncate(job.n_cached_tokens);
  return session;
}

void Batch::Impl::start_own_part(BatchJob& job) {
  job.session.emplace(open_session(job));
  read_on(job);
}

void Batch::Impl::score(const BatchJob& job, std::size_t i, std::span<const float> logits) {
  const BatchRequest& request = job.request;
  if (i < request.context.size() || i >= job.tokens.size() || !job.callbacks.on_prompt_token) return;
  job.callbacks.on_prompt_token(scored_token(0, job.tokens[i], logits, request.n_prompt_probabilities));
}

void Batch::Impl::read_on(BatchJob& job) {
  const std::int32_t n_read = job.session->n_tokens();
  const std::span<const Token> part = next_part(job.tokens, n_read, job.snapshot_at);
  if (part.empty()) return job.embedding ? finish_embedding(job) : start_answers(job);
  const BatchRequest& request = job.request;
  PrefillOptions callbacks;
  if (job.embedding) {
    callbacks.on_hidden = [&pool = *job.embedding](std::int32_t position, std::span<const float> row) {
      pool.add(position, row);
    };
  }
  if (scores_prompt(request)) {
    const auto first = static_cast<std::size_t>(n_read);
    if (first == request.context.size()) {
      score(job, first, n_read > 0 ? job.session->logits() : std::span<const float>());
    }
    callbacks.on_logits = [&job](std::int32_t position, std::span<const float> logits) {
      score(job, static_cast<std::size_t>(position) + 1, logits);
    };
  }
  const bool is_cut = request.session.eviction.evicts() && request.context.empty();
  Session* session = &*job.session;
  prefills.push_back({.job = &job,
                      .prefill = n_read == 0 || is_cut ? engine->start_prefill(std::span(&session, 1), part, callbacks)
                                                       : engine->start_append(*session, part, callbacks),
                      .n_tokens = static_cast<std::int32_t>(part.size())});
}

void Batch::Impl::read_on(const PrefixPointer& context) {
  Session* session = &context->session;
  const std::span<const Token> part = next_part(context->tokens, session->n_tokens(), context->snapshot_at);
  prefills.push_back({.context = context,
                      .prefill = engine->start_prefill(std::span(&session, 1), part),
                      .n_tokens = static_cast<std::int32_t>(part.size())});
}

void Batch::Impl::read(double seconds) {
  const auto start = BatchClock::now();
  auto before = start;
  do {
    const bool goes_on = read_slice(prefills.front());
    ++totals.slices;
    const auto now = BatchClock::now();
    turn_s += seconds_between(before, now);
    before = now;
    if (!goes_on || turn_s > kTurnSeconds) {
      if (goes_on) prefills.splice(prefills.end(), prefills, prefills.begin());
      turn_s = 0;
    }
  } while (!prefills.empty() && seconds_between(start, before) < seconds);
  totals.prefill_s += seconds_between(start, before);
}

void Batch::Impl::stop_reading(const BatchJob* job, const KeptPrefix* context) {
  prefills.remove_if([&](const ScheduledPrefill& reading) {
    return job != nullptr ? reading.job == job : reading.context.get() == context;
  });
}

void Batch::Impl::tell_reading(ScheduledPrefill& reading) const {
  const auto now = BatchClock::now();
  if (!options.on_reading || seconds_between(reading.reported, now) < options.between_readings_s) return;
  reading.reported = now;
  BatchReadingProgress progress{.n_tokens = reading.n_tokens, .seconds = seconds_between(reading.started, now)};
  if (reading.job != nullptr) {
    progress.request = reading.job->id;
  } else if (const std::vector<BatchJob*> users = users_of(*reading.context); !users.empty()) {
    progress.request = users.front()->id;
  }
  progress.share = static_cast<double>(reading.prefill.work_done()) / static_cast<double>(reading.prefill.work_total());
  options.on_reading(progress);
}

bool Batch::Impl::read_slice(ScheduledPrefill& reading) {
  const PrefixPointer context = reading.context;
  BatchJob* job = reading.job;
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
  try {
    if (reading.prefill.step()) {
      tell_reading(reading);
      return true;
    }
    totals.prompt_tokens += reading.n_tokens;
    prefills.pop_front();
    if (context) {
      finish_part(context);
    } else {
      finish_part(*job);
    }
    return false;
  } catch (const Error& error) {
    code = error.code();
    message = error.what();
  } catch (const std::exception& error) {
    message = error.what();
  }
  if (context) {
    context->is_kept = false;
    for (BatchJob* user : users_of(*context)) fail(*user, code, message);
  } else {
    fail(*job, code, message);
  }
  return false;
}

std::vector<BatchJob*> Batch::Impl::users_of(const KeptPrefix& context) const {
  std::vector<BatchJob*> users;
  for (const std::unique_ptr<BatchJob>& job : running) {
    if (job->prefix.get() == &context) users.push_back(job.get());
  }
  return users;
}

void Batch::Impl::finish_part(BatchJob& job) {
  keep_prompt(job);
  read_on(job);
}

void Batch::Impl::finish_part(const PrefixPointer& context) {
  has_changed = true;
  if (context->session.n_tokens() < static_cast<std::int32_t>(context->tokens.size())) {
    if (context->is_kept) tree.add(context->key, context->session.fork(), true);
    return read_on(context);
  }
  tree.set_ready(context);
  tree.trim();
  for (BatchJob* job : users_of(*context)) {
    try {
      start_own_part(*job);
    } catch (const Error& error) {
      fail(*job, error.code(), error.what());
    }
  }
}

}  // namespace winnow
