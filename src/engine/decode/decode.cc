// Runs one step of decoding, for one sequence or several.
#include <algorithm>
#include <chrono>
#include <optional>

#include "engine/engine_impl.h"
#include "engine/steps_in_turn.h"
#include "winnow/error.h"
#include "winnow/pipeline.h"

namespace winnow {

namespace {

// Throws unless these tokens can be fed now.
void check_step(const Engine::Impl& engine, std::span<Session* const> sessions, std::span<const Token> tokens) {
  if (sessions.empty() || sessions.size() != tokens.size()) {
    throw Error(ErrorCode::kInvalidArgument, "a step needs one token for each of its sessions");
  }
  engine.check_sessions(sessions);
  for (std::size_t i = 0; i < sessions.size(); ++i) {
    const Session::Impl& session = sessions[i]->impl();
    session.check_tokens(tokens.subspan(i, 1));
    session.check_cut_after_decode();
  }
}

// Returns a step of these sessions, whose time begins now.
DecodeStep step_of(std::span<Session* const> sessions, std::span<const Token> tokens) {
  DecodeStep step{.tokens = {tokens.begin(), tokens.end()}};
  for (Session* session : sessions) step.sessions.push_back(&session->impl());
  return step;
}

// Sends the step's rows through the layers. Returns their logits [n_sequences][n_vocab], valid until the next step, or
// nothing where another rank computes them. If it throws, nothing has changed.
std::span<const float> run_layers(Engine::Impl& engine, const DecodeStep& step) {
  std::vector<std::optional<RaggedCache>> before(step.sessions.size());
  try {
    engine.executor->reserve_step(static_cast<int>(step.sessions.size()));
    std::vector<StepSequence> sequences;
    for (std::size_t i = 0; i < step.sessions.size(); ++i) {
      Session::Impl* session = step.sessions[i];
      session->reserve_step();
      const std::int32_t position = session->n_tokens();
      before[i] = session->cache.fork_to_undo();
      session->cache.extend_all(1, position);
      sequences.push_back({.cache = &session->cache,
                           .evidence = &session->evidence,
                           .state = &session->recurrent,
                           .position = position});
    }
    engine.executor->begin_step({.sequences = sequences, .tokens = step.tokens});
    return engine.executor->run_step();
  } catch (...) {
    for (std::size_t i = 0; i < step.sessions.size(); ++i) {
      Session::Impl* session = step.sessions[i];
      session->cache.undo(std::move(before[i]), session->n_tokens());
      session->recurrent.discard();
    }
    throw;
  }
}

// Records the step's tokens and logits [n_sequences][n_vocab] in its sessions.
void record(const DecodeStep& step, std::span<const float> logits) {
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - step.start;
  const std::size_t n_vocab = logits.size() / step.sessions.size();
  for (std::size_t i = 0; i < step.sessions.size(); ++i) {
    if (step.sessions[i] == nullptr) continue;
    step.sessions[i]->record_step(step.tokens[i], logits.subspan(i * n_vocab, n_vocab), seconds.count());
  }
}

// Waits for the step's logits and records them.
void record_awaited(const Engine::Impl& engine, const DecodeStep& step) {
  record(step, engine.executor->await_logits(static_cast<int>(step.sessions.size())));
}

// Makes the cuts that are due in the step's sessions. Throws CutError naming those that failed.
void cut(const Engine::Impl& engine, const DecodeStep& step) {
  std::vector<CutError::Failure> failures;
  for (std::size_t i = 0; i < step.sessions.size(); ++i) {
    if (step.sessions[i] == nullptr) continue;
    try {
      engine.pipeline.together([&] { step.sessions[i]->cut_after_decode(); });
    } catch (const PipelineError&) {
      throw;  // all ranks end: others were in the middle of this cut
    } catch (const Error& error) {
      failures.push_back({.session = i, .code = error.code(), .message = error.what()});
    } catch (const std::exception& error) {
      failures.push_back({.session = i, .code = ErrorCode::kInternal, .message = error.what()});
    }
  }
  if (!failures.empty()) throw CutError(std::move(failures));
}

}  // namespace

void Engine::Impl::decode(std::span<Session* const> sessions, std::span<const Token> tokens) {
  start_step(sessions, tokens);
  finish_step();
}

void Engine::Impl::start_step(std::span<Session* const> sessions, std::span<const Token> tokens) {
  DecodeStep& step = steps.emplace_back(step_of(sessions, tokens));  // nothing may fail once the step is recorded
  try {
    const std::span<const float> logits = run_layers(*this, step);
    step.has_logits = !logits.empty();
    if (step.has_logits) record(step, logits);
  } catch (...) {
    steps.pop_back();
    throw;
  }
  for (Session::Impl* session : step.sessions) session->is_stepping = true;
}

void Engine::Impl::finish_step() {
  const DecodeStep step = std::move(steps.front());
  steps.pop_front();
  for (Session::Impl* session : step.sessions) {
    if (session != nullptr) session->is_stepping = false;
  }
  if (!step.has_logits) record_awaited(*this, step);
  cut(*this, step);  // once all sessions are recorded: a cut that fails must not leave half a step behind
}

void Engine::decode(std::span<Session* const> sessions, std::span<const Token> tokens) {
  const std::lock_guard lock(impl_->mutex);
  if (!impl_->steps.empty()) throw Error(ErrorCode::kInvalidArgument, "steps are under way: finish them first");
  check_step(*impl_, sessions, tokens);
  impl_->calls->decode(*impl_, sessions, tokens);
}

int n_steps_at_once(Engine& engine) { return engine.impl().pipeline.n_ranks(); }

void start_step(Engine& engine, std::span<Session* const> sessions, std::span<const Token> tokens) {
  Engine::Impl& impl = engine.impl();
  const std::lock_guard lock(impl.mutex);
  check_step(impl, sessions, tokens);
  impl.calls->start_step(impl, sessions, tokens);
}

void finish_step(Engine& engine) {
  Engine::Impl& impl = engine.impl();
  const std::lock_guard lock(impl.mutex);
  if (impl.steps.empty()) throw Error(ErrorCode::kInvalidArgument, "no step is under way: start one first");
  impl.calls->finish_step(impl);
}

void Engine::Impl::forget(const Session::Impl& session) {
  const auto lock = lock_to_destroy(mutex);
  for (DecodeStep& step : steps) {
    std::replace_if(
        step.sessions.begin(), step.sessions.end(), [&](const Session::Impl* s) { return s == &session; }, nullptr);
  }
}

CutError::CutError(std::vector<Failure> the_failures)
    : Error(the_failures.at(0).code,
            "the token was decoded, but the cache could not be cut after it: " + the_failures.at(0).message),
      failures(std::move(the_failures)) {}

}  // namespace winnow
