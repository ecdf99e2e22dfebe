// The batch's thread: who comes next, and when.
#include <algorithm>

#include "batch/batch_impl.h"
#include "engine/engine_impl.h"

namespace winnow {
namespace {

// A reading keeps its turn for so long: every change of layer or prompt converts a layer's weights anew.
constexpr double kTurnSeconds = 0.05;
// While nobody waits for tokens, so long between two looks at what others want.
constexpr double kIdleReadSeconds = 0.02;
// A busy batch saves a context after this time, an idle one at once.
constexpr std::chrono::seconds kLatestSave{2};

}  // namespace

void Batch::Impl::run() {
  while (receive()) {
    admit();
    const double seconds = step();
    if (!readings.empty()) read(seconds > 0 ? seconds * options.prefill_share : kIdleReadSeconds);
    if (active.empty()) {
      store.save_one(std::chrono::seconds(0));
    } else {
      store.save_one(kLatestSave);
    }
    publish();
  }
  // Those that are left hear of their end.
  while (!active.empty()) finish(*active.front(), FinishReason::kCancelled);
  while (!queue.empty()) finish(*queue.front(), FinishReason::kCancelled);
  while (store.save_one(std::chrono::seconds(0))) {
  }
}

bool Batch::Impl::receive() {
  std::deque<std::unique_ptr<BatchJob>> arrived;
  std::vector<std::uint64_t> ids;
  {
    std::unique_lock lock(mutex);
    const auto has_news = [&] { return is_stopping || !incoming.empty() || !cancelled.empty(); };
    if (active.empty() && queue.empty() && !has_news()) {
      lock.unlock();
      const bool is_saving = store.save_one(std::chrono::seconds(0));
      if (!is_saving) {
        drop_step();
        engine->impl().pool->trim();
      }
      lock.lock();
      if (!is_saving) {
        turn_begin.reset();
        wake.wait(lock, has_news);
      }
    }
    turn_begin = BatchClock::now();
    arrived.swap(incoming);
    ids.swap(cancelled);
    if (is_stopping) {
      for (std::unique_ptr<BatchJob>& job : arrived) queue.push_back(std::move(job));
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
  queue.push_back(std::move(job));
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
    for (const std::unique_ptr<BatchJob>& other : active) job = other->id == id ? other.get() : job;
    for (const std::unique_ptr<BatchJob>& other : queue) job = other->id == id ? other.get() : job;
    if (job != nullptr) finish(*job, FinishReason::kCancelled);
  }
}

std::size_t Batch::Impl::bytes_promised() const {
  std::size_t sum = store.bytes();
  for (const std::unique_ptr<BatchJob>& job : active) sum += job->promised;
  return sum;
}

int Batch::Impl::n_answers() const {
  int n = 0;
  for (const std::unique_ptr<BatchJob>& job : active) n += job->request.n_answers;
  return n;
}

bool Batch::Impl::make_room(const BatchJob& job, BatchContext* context) {
  if (n_answers() + job.request.n_answers > options.n_parallel) return false;
  const std::size_t limit = engine->memory().kv_bytes_limit;
  if (limit == 0) return true;
  const std::size_t needed = job.needs.own + (context == nullptr ? job.needs.context : 0);
  while (bytes_promised() + needed > limit) {
    if (!store.remove_one(context)) return false;
    has_changed = true;
  }
  return true;
}

void Batch::Impl::admit() {
  while (!queue.empty()) {
    const BatchRequest& request = queue.front()->request;
    ContextPointer context;
    if (!request.context.empty()) context = store.find(context_key(request.session), request.context);
    if (!make_room(*queue.front(), context.get())) return;
    std::unique_ptr<BatchJob> job = std::move(queue.front());
    queue.pop_front();
    {
      const std::lock_guard lock(mutex);
      --n_waiting;
    }
    start(std::move(job), std::move(context));
  }
}

void Batch::Impl::start(std::unique_ptr<BatchJob> owned, ContextPointer context) {
  active.push_back(std::move(owned));
  BatchJob& job = *active.back();
  has_changed = true;
  job.promised = job.needs.own;
  job.admitted = BatchClock::now();
  job.result.queue_s = seconds_between(job.submitted, job.admitted);
  try {
    if (job.request.context.empty()) {
      start_own_part(job);
      return;
    }
    if (context) {
      ++totals.context_hits;
      ++context->n_hits;
      context->is_kept |= job.request.keep_context && options.context_bytes > 0;
      job.result.cached_tokens = static_cast<std::int32_t>(context->tokens.size());
      totals.cached_tokens += job.result.cached_tokens;
    } else {
      ++totals.context_misses;
      context = store.add(job.request.session, job.request.context, job.needs.context, job.request.keep_context);
    }
    job.context = context;
    store.use(*context);
    if (context->is_ready) {
      start_own_part(job);
    } else if (context->n_users == 1) {
      Session* session = &context->session;
      readings.push_back(
          {.context = context, .prefill = engine->start_prefill(std::span(&session, 1), context->tokens)});
    }
  } catch (const Error& error) {
    fail(job, error.code(), error.what());
  } catch (const std::exception& error) {
    fail(job, ErrorCode::kInternal, error.what());
  }
}

void Batch::Impl::start_own_part(BatchJob& job) {
  if (job.context) {
    job.session.emplace(job.context->session.fork());
    readings.push_back({.job = &job, .prefill = engine->start_append(*job.session, job.request.prompt)});
    return;
  }
  job.session.emplace(engine->open(job.request.session));
  Session* session = &*job.session;
  readings.push_back({.job = &job, .prefill = engine->start_prefill(std::span(&session, 1), job.request.prompt)});
}

void Batch::Impl::read(double seconds) {
  const auto start = BatchClock::now();
  auto before = start;
  do {
    const bool goes_on = read_slice(readings.front());
    ++totals.slices;
    const auto now = BatchClock::now();
    turn_s += seconds_between(before, now);
    before = now;
    if (!goes_on || turn_s > kTurnSeconds) {
      if (goes_on) readings.splice(readings.end(), readings, readings.begin());
      turn_s = 0;
    }
  } while (!readings.empty() && seconds_between(start, before) < seconds);
  totals.prefill_s += seconds_between(start, before);
}

void Batch::Impl::stop_reading(const BatchJob* job, const BatchContext* context) {
  readings.remove_if([&](const BatchReading& reading) {
    return job != nullptr ? reading.job == job : reading.context.get() == context;
  });
}

bool Batch::Impl::read_slice(BatchReading& reading) {
  const ContextPointer context = reading.context;
  BatchJob* job = reading.job;
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
  try {
    if (reading.prefill.step()) return true;
    readings.pop_front();
    if (context) {
      totals.prompt_tokens += static_cast<std::int64_t>(context->tokens.size());
      finish_context(context);
    } else {
      totals.prompt_tokens += static_cast<std::int64_t>(job->request.prompt.size());
      start_answers(*job);
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

std::vector<BatchJob*> Batch::Impl::users_of(const BatchContext& context) const {
  std::vector<BatchJob*> users;
  for (const std::unique_ptr<BatchJob>& job : active) {
    if (job->context.get() == &context) users.push_back(job.get());
  }
  return users;
}

void Batch::Impl::finish_context(const ContextPointer& context) {
  store.set_ready(*context);
  has_changed = true;
  for (BatchJob* job : users_of(*context)) {
    try {
      start_own_part(*job);
    } catch (const Error& error) {
      fail(*job, error.code(), error.what());
    }
  }
}

}  // namespace winnow
