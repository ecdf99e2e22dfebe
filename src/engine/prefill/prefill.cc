#include <algorithm>
#include <functional>
#include <mutex>
#include <utility>

#include "base/stopwatch.h"
#include "engine/prefill/append_prefill.h"
#include "engine/prefill/layer_prefill.h"
#include "winnow/error.h"

namespace winnow {
namespace {

// Throws Error(kInvalidArgument) unless these sessions can be in one prefill now.
void check_sessions(const Engine::Impl& engine, std::span<Session* const> sessions) {
  if (sessions.empty()) throw Error(ErrorCode::kInvalidArgument, "a prefill needs at least one session");
  engine.check_sessions(sessions);
  if (sessions.size() == 1) return;
  for (const Session* given : sessions) {
    const Session::Impl& session = given->impl();
    const CacheShape shape = session.cache.shape().plain(), first = sessions[0]->impl().cache.shape().plain();
    if (shape.key_type != first.key_type || shape.value_type != first.value_type) {
      throw Error(ErrorCode::kInvalidArgument, "sessions with different entry types cannot share a prefill");
    }
    if (session.n_tokens() > 0 || session.options.prefill_chunk > 0) {
      throw Error(
          ErrorCode::kInvalidArgument,
          "only empty sessions that prefill layer by layer can share a prefill: clear them, or feed them one by "
          "one");
    }
  }
}

// Takes the sessions and the memory that the first steps need; undoes the prefill if that fails.
void begin(Prefill::Impl& prefill) {
  try {
    prefill.engine_impl().calls->begin_prefill(prefill);
  } catch (...) {
    prefill.undo();
    throw;
  }
  for (Session::Impl* session : prefill.sessions) session->is_prefilling = true;
}

}  // namespace

Prefill::Impl::Impl(std::shared_ptr<Engine> the_engine, std::vector<Session::Impl*> the_sessions,
                    std::span<const Token> the_tokens, const PrefillOptions& the_callbacks)
    : engine(std::move(the_engine)),
      sessions(std::move(the_sessions)),
      tokens(the_tokens.begin(), the_tokens.end()),
      callbacks(the_callbacks),
      work_total(static_cast<std::int64_t>(tokens.size()) * engine_impl().layers.size()) {}

Prefill::Impl::~Impl() = default;

ForwardPlan Prefill::Impl::forward_plan(std::span<const Token> rows, std::int32_t first_position) const {
  return {.layers = engine_impl().layers,
          .tokens = rows,
          .first_position = first_position,
          .n_batch = engine_impl().options.n_batch,
          .is_awaited = engine_impl().pipeline.n_ranks() > 1,
          .reads_all_rows = callbacks.on_logits || callbacks.on_hidden};
}

void Prefill::Impl::begin_forward(const ForwardPlan& plan, EntrySink& sink, RecurrentState& state,
                                  std::vector<QueryEvidence*> recorders) {
  pass.emplace(*engine_impl().executor, engine_impl().model->impl().spec, plan, sink, state, std::move(recorders));
}

void Prefill::Impl::give_up() {
  stage = undo() ? Stage::kFed : Stage::kUndone;
  for (Session::Impl* session : sessions) session->is_prefilling = false;
  engine_impl().calls->forget(slices.number);
}

bool Prefill::Impl::advance() {
  if (!pass) begin_pass();
  if (pass->is_through()) return end_pass();
  if (const std::optional<RepeatedPart> part = pass->next_part()) begin_repeat(pass->layer(), *part);
  if (const std::optional<int> layer = pass->step()) end_layer(*layer);
  return true;
}

std::vector<float> Prefill::Impl::read_output() {
  if (callbacks.on_hidden) pass->read_hidden(callbacks.on_hidden);
  if (callbacks.on_hidden && !callbacks.on_logits) return {};
  return pass->read_logits(callbacks.on_logits);
}

std::unique_ptr<Prefill::Impl> start_prefill(const std::shared_ptr<Engine>& engine, std::span<Session* const> sessions,
                                             std::span<const Token> tokens, const PrefillOptions& callbacks,
                                             const LayerObserver* observer) {
  check_sessions(engine->impl(), sessions);
  Session::Impl& first = sessions[0]->impl();
  const bool evicts = first.options.eviction.evicts();
  const auto chunk = static_cast<std::size_t>(first.options.prefill_chunk);
  std::unique_ptr<Prefill::Impl> prefill;
  if (first.n_tokens() > 0) {
    first.check_tokens(tokens);
    std::optional<std::int64_t> total;
    if (evicts && first.options.budget->unit == Budget::Unit::kLoss && !first.statistics.promise) {
      throw Error(ErrorCode::kUnsupported,
                  "the budget " + first.options.budget->text() +
                      " is measured on a session's first prompt, but this session was fed another way: give a size");
    }
    if (evicts) {
      const auto n = static_cast<std::int32_t>(tokens.size());
      total = first.total_entries(first.n_tokens() + n);
      first.check_cut(n, *total);
    }
    prefill = std::make_unique<AppendPrefill>(engine, first, tokens, callbacks, total, tokens.size());
  } else if (evicts && chunk > 0 && tokens.size() > chunk) {
    first.check_tokens(tokens);
    const auto n = static_cast<std::int32_t>(tokens.size());
    const std::int64_t total = first.total_entries(n);
    first.check_cut(n, total);  // before the first chunk, on all ranks alike
    prefill = std::make_unique<AppendPrefill>(engine, first, tokens, callbacks, total, chunk);
  } else {
    std::vector<Session::Impl*> targets;
    for (Session* session : sessions) targets.push_back(&session->impl());
    prefill = std::make_unique<LayerPrefill>(engine, std::move(targets), tokens, callbacks, observer);
  }
  begin(*prefill);
  return prefill;
}

Prefill::Prefill(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Prefill::Prefill(Prefill&&) noexcept = default;

Prefill& Prefill::operator=(Prefill&& other) noexcept {
  if (this != &other) {
    Prefill old(std::move(impl_));  // gives up the prefill that was under way
    impl_ = std::move(other.impl_);
  }
  return *this;
}

Prefill::~Prefill() {
  if (!impl_) return;
  const std::shared_ptr<Engine> engine = impl_->engine;  // outlives the lock
  const auto lock = lock_to_destroy(impl_->engine_impl().mutex);
  if (impl_->stage == Impl::Stage::kUnderWay) impl_->give_up();
  impl_.reset();
}

bool Prefill::step() {
  Impl& prefill = *impl_;
  const std::lock_guard lock(prefill.engine_impl().mutex);
  if (prefill.stage != Impl::Stage::kUnderWay) return false;
  bool more = false, goes_on = true;
  const Stopwatch watch;
  try {
    prefill.engine_impl().calls->step_prefill(prefill, [&](bool is_more) {
      more = is_more;
      if (more && prefill.callbacks.on_progress) {
        goes_on &= prefill.callbacks.on_progress(work_done(), prefill.work_total);
      }
      return goes_on;
    });
    if (prefill.refusal) std::rethrow_exception(prefill.refusal);
    if (more && !goes_on) throw Error(ErrorCode::kCancelled, "the prefill was stopped");
  } catch (...) {
    prefill.give_up();
    throw;
  }
  prefill.seconds += watch.seconds();
  if (more) return true;
  for (Session::Impl* session : prefill.sessions) {
    session->statistics.prefill_s += prefill.seconds;
    session->is_prefilling = false;
  }
  prefill.stage = Impl::Stage::kFed;
  return false;
}

bool Prefill::done() const { return impl_->stage == Impl::Stage::kFed; }

std::int64_t Prefill::work_total() const { return impl_->work_total; }

std::int64_t Prefill::work_done() const {
  if (impl_->stage != Impl::Stage::kUnderWay) return impl_->work_total;
  return impl_->work_before + (impl_->pass ? impl_->pass->work_done() : 0);
}

Prefill Engine::start_prefill(std::span<Session* const> sessions, std::span<const Token> tokens,
                              const PrefillOptions& options) {
  const std::lock_guard lock(impl_->mutex);
  return Prefill(winnow::start_prefill(shared_from_this(), sessions, tokens, options));
}

Prefill Engine::start_append(Session& session, std::span<const Token> tokens, const PrefillOptions& options) {
  const std::lock_guard lock(impl_->mutex);
  Session* const given = &session;
  impl_->check_sessions(std::span(&given, 1));
  auto prefill =
      std::make_unique<AppendPrefill>(shared_from_this(), session.impl(), tokens, options, std::nullopt, tokens.size());
  prefill->is_append = true;
  begin(*prefill);
  return Prefill(std::move(prefill));
}

void Engine::prefill(std::span<Session* const> sessions, std::span<const Token> tokens, const PrefillOptions& options) {
  Prefill prefill = start_prefill(sessions, tokens, options);
  while (prefill.step()) {
  }
}

void Session::prefill(std::span<const Token> prompt, const PrefillOptions& callbacks) {
  Session* self = this;
  impl_->engine->prefill(std::span(&self, 1), prompt, callbacks);
}

void Session::append(std::span<const Token> more, const PrefillOptions& callbacks) {
  Prefill prefill = impl_->engine->start_append(*this, more, callbacks);
  while (prefill.step()) {
  }
}

}  // namespace winnow
