// One step of decoding, for one sequence or several.
#include <ggml.h>

#include <algorithm>
#include <chrono>
#include <iterator>

#include "engine/decode/steps_in_turn.h"
#include "engine/engine_impl.h"
#include "engine/stored_numbers.h"
#include "winnow/error.h"

namespace winnow {

StepGraph& Engine::Impl::step_graph(int n_sequences) {
  ++n_steps;
  const auto is_wanted = [&](const std::unique_ptr<StepGraph>& graph) {
    return graph->positions.size() == static_cast<std::size_t>(n_sequences);
  };
  std::erase_if(step_graphs, [&](const std::unique_ptr<StepGraph>& graph) {
    return !is_wanted(graph) && graph->last_step + pipeline.n_ranks() <= n_steps;
  });
  auto place = std::find_if(step_graphs.begin(), step_graphs.end(), is_wanted);
  if (place == step_graphs.end()) {
    step_graphs.push_back(std::make_unique<StepGraph>(model->impl(), layers, n_sequences, compute));
    place = std::prev(step_graphs.end());
  }
  (*place)->last_step = n_steps;
  return **place;
}

void Engine::Impl::drop_step_graph() {
  step_graphs.clear();
  note_graph_bytes();
}

namespace {

// Throws unless these tokens can be fed now.
void check_step(const Engine::Impl& engine, std::span<Session* const> sessions, std::span<const Token> tokens) {
  if (sessions.empty() || sessions.size() != tokens.size()) {
    throw Error(ErrorCode::kInvalidArgument, "a step needs one token for each of its sessions");
  }
  for (std::size_t i = 0; i < sessions.size(); ++i) {
    const Session::Impl& session = sessions[i]->impl();
    if (&session.engine_impl() != &engine) {
      throw Error(ErrorCode::kInvalidArgument, "a session of another engine cannot be in this step");
    }
    if (std::count(sessions.begin(), sessions.end(), sessions[i]) > 1) {
      throw Error(ErrorCode::kInvalidArgument, "a session can be in a step only once");
    }
    session.check_idle();
    session.check_tokens(tokens.subspan(i, 1));
    session.check_cut_after_decode();
  }
}

void tell_step(Leader& leader, LedCall call, std::span<Session* const> sessions, std::span<const Token> tokens) {
  leader.tell(call, [&](std::ostream& out) {
    std::vector<std::uint64_t> numbers;
    for (const Session* session : sessions) numbers.push_back(session->impl().number);
    put_array(out, std::span<const std::uint64_t>(numbers));
    put_array(out, tokens);
  });
}

DecodeStep step_of(std::span<Session* const> sessions, std::span<const Token> tokens) {
  DecodeStep step{.tokens = {tokens.begin(), tokens.end()}};
  for (Session* session : sessions) step.sessions.push_back(&session->impl());
  return step;
}

// Sends the step's rows through the layers that are here, and on. Returns their logits [n_sequences][n_vocab] on the
// rank that has them, until the next step; nothing on others. What throws has changed nothing.
std::span<const float> run_layers(Engine::Impl& engine, const DecodeStep& step) try {
  StepGraph& graph = engine.step_graph(static_cast<int>(step.sessions.size()));
  std::vector<StepSequence> sequences;
  for (std::size_t i = 0; i < step.sessions.size(); ++i) {
    Session::Impl& session = *step.sessions[i];
    session.reserve_step();
    const std::int32_t position = session.n_tokens();
    session.cache.extend_all(1, position);
    sequences.push_back(
        {.cache = &session.cache, .evidence = &session.evidence, .state = &session.recurrent, .position = position});
    graph.positions[i] = position;
  }
  if (engine.layers.first == 0) engine.embed(step.tokens, graph.hidden.data());
  std::copy_n(step.tokens.begin(), graph.tokens.size(), graph.tokens.begin());
  graph.attention.plan(sequences);
  engine.note_graph_bytes();
  engine.pipeline.receive_rows(graph.hidden);
  engine.compute.run(graph.graph);
  engine.pipeline.send_rows(graph.hidden);
  if (graph.logits == nullptr) return {};
  const std::span rows(static_cast<const float*>(graph.logits->data),
                       static_cast<std::size_t>(ggml_nelements(graph.logits)));
  engine.pipeline.send_logits(rows);
  return rows;
} catch (...) {
  for (Session::Impl* session : step.sessions) {
    session->cache.truncate(session->n_tokens());
    session->recurrent.discard();
  }
  throw;
}

// logits: [n_sequences][n_vocab]
void record(const DecodeStep& step, std::span<const float> logits) {
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - step.start;
  const std::size_t n_vocab = logits.size() / step.sessions.size();
  for (std::size_t i = 0; i < step.sessions.size(); ++i) {
    if (step.sessions[i] == nullptr) continue;
    step.sessions[i]->record_step(step.tokens[i], logits.subspan(i * n_vocab, n_vocab), seconds.count());
  }
}

void record_from_last_rank(const Engine::Impl& engine, const DecodeStep& step) {
  const auto n_vocab = static_cast<std::size_t>(engine.model->impl().spec.n_vocab);
  std::vector<float> logits(step.sessions.size() * n_vocab);
  engine.pipeline.receive_logits(logits);
  record(step, logits);
}

void cut(const Engine::Impl& engine, const DecodeStep& step) {
  std::vector<CutError::Failure> failures;
  for (std::size_t i = 0; i < step.sessions.size(); ++i) {
    if (step.sessions[i] == nullptr) continue;
    try {
      step.sessions[i]->cut_after_decode();
    } catch (const Error& error) {
      if (engine.pipeline.is_split()) throw;  // other ranks are in the middle of this cut
      failures.push_back({.session = i, .code = error.code(), .message = error.what()});
    } catch (const std::exception& error) {
      if (engine.pipeline.is_split()) throw;
      failures.push_back({.session = i, .code = ErrorCode::kInternal, .message = error.what()});
    }
  }
  if (!failures.empty()) throw CutError(std::move(failures));
}

}  // namespace

void Engine::decode(std::span<Session* const> sessions, std::span<const Token> tokens) {
  const std::lock_guard lock(impl_->mutex);
  if (!impl_->steps.empty()) throw Error(ErrorCode::kInvalidArgument, "steps are under way: finish them first");
  check_step(*impl_, sessions, tokens);
  tell_step(impl_->leader, LedCall::kDecode, sessions, tokens);
  impl_->pipeline.together([&] {
    const DecodeStep step = step_of(sessions, tokens);
    const std::span<const float> logits = run_layers(*impl_, step);
    // All of them are recorded before any is cut: a cut that fails must not leave half a step behind.
    if (impl_->pipeline.is_last()) {
      record(step, logits);
    } else {
      record_from_last_rank(*impl_, step);
    }
    cut(*impl_, step);
  });
}

int n_steps_at_once(Engine& engine) { return engine.impl().pipeline.n_ranks(); }

void start_step(Engine& engine, std::span<Session* const> sessions, std::span<const Token> tokens) {
  Engine::Impl& impl = engine.impl();
  const std::lock_guard lock(impl.mutex);
  check_step(impl, sessions, tokens);
  tell_step(impl.leader, LedCall::kStartStep, sessions, tokens);
  impl.pipeline.together([&] {
    DecodeStep step = step_of(sessions, tokens);
    const std::span<const float> logits = run_layers(impl, step);
    if (impl.pipeline.is_last()) record(step, logits);
    for (Session::Impl* session : step.sessions) session->is_stepping = true;
    impl.steps.push_back(std::move(step));
  });
}

void finish_step(Engine& engine) {
  Engine::Impl& impl = engine.impl();
  const std::lock_guard lock(impl.mutex);
  if (impl.steps.empty()) throw Error(ErrorCode::kInvalidArgument, "no step is under way: start one first");
  impl.leader.tell(LedCall::kFinishStep);
  impl.pipeline.together([&] {
    const DecodeStep step = std::move(impl.steps.front());
    impl.steps.pop_front();
    for (Session::Impl* session : step.sessions) {
      if (session != nullptr) session->is_stepping = false;
    }
    if (!impl.pipeline.is_last()) record_from_last_rank(impl, step);
    cut(impl, step);
  });
}

void Engine::Impl::forget(const Session::Impl& session) {
  const std::lock_guard lock(mutex);
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
