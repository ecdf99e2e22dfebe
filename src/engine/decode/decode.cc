// One step of decoding, for one sequence or several.
#include <ggml.h>

#include <algorithm>
#include <chrono>

#include "engine/engine_impl.h"
#include "engine/stored_numbers.h"
#include "winnow/error.h"

namespace winnow {

StepGraph& Engine::Impl::step_graph(int n_sequences) {
  if (!last_step || last_step->positions.size() != static_cast<std::size_t>(n_sequences)) {
    last_step.reset();
    last_step = std::make_unique<StepGraph>(model->impl(), layers, n_sequences, compute);
  }
  return *last_step;
}

void Engine::Impl::drop_step_graph() {
  last_step.reset();
  note_graph_bytes();
}

void Engine::decode(std::span<Session* const> sessions, std::span<const Token> tokens) {
  if (sessions.empty() || sessions.size() != tokens.size()) {
    throw Error(ErrorCode::kInvalidArgument, "a step needs one token for each of its sessions");
  }
  const std::lock_guard lock(impl_->mutex);
  for (std::size_t i = 0; i < sessions.size(); ++i) {
    const Session::Impl& session = sessions[i]->impl();
    if (session.engine.get() != this) {
      throw Error(ErrorCode::kInvalidArgument, "a session of another engine cannot be in this step");
    }
    if (std::count(sessions.begin(), sessions.end(), sessions[i]) > 1) {
      throw Error(ErrorCode::kInvalidArgument, "a session can be in a step only once");
    }
    session.check_idle();
    session.check_tokens(tokens.subspan(i, 1));
    session.check_cut_after_decode();
  }

  impl_->leader.tell(LedCall::kDecode, [&](std::ostream& out) {
    std::vector<std::uint64_t> numbers;
    for (const Session* session : sessions) numbers.push_back(session->impl().number);
    put_array(out, std::span<const std::uint64_t>(numbers));
    put_array(out, tokens);
  });
  impl_->pipeline.together([&] { impl_->decode(sessions, tokens); });
}

void Engine::Impl::decode(std::span<Session* const> sessions, std::span<const Token> tokens) {
  const auto n_vocab = static_cast<std::size_t>(model->impl().spec.n_vocab);
  StepGraph& step = step_graph(static_cast<int>(sessions.size()));
  const auto start = std::chrono::steady_clock::now();
  std::vector<StepSequence> sequences;
  const auto undo = [&] {
    for (Session* session : sessions) {
      session->impl().cache.truncate(session->impl().n_tokens());
      session->impl().recurrent.discard();
    }
  };
  try {
    for (std::size_t i = 0; i < sessions.size(); ++i) {
      Session::Impl& session = sessions[i]->impl();
      session.reserve_step();
      const std::int32_t position = session.n_tokens();
      session.cache.extend_all(1, position);
      sequences.push_back(
          {.cache = &session.cache, .evidence = &session.evidence, .state = &session.recurrent, .position = position});
      step.positions[i] = position;
    }
    if (layers.first == 0) embed(tokens, step.hidden.data());
    std::copy_n(tokens.begin(), step.tokens.size(), step.tokens.begin());
    step.attention.plan(sequences);
    note_graph_bytes();
    pipeline.receive_rows(step.hidden);
    compute.run(step.graph);
    pipeline.send_rows(step.hidden);
    if (step.logits == nullptr) {
      step.received.resize(sessions.size() * n_vocab);
      pipeline.share_output(step.received);
    } else {
      pipeline.share_output({static_cast<float*>(step.logits->data), sessions.size() * n_vocab});
    }
  } catch (...) {
    undo();
    throw;
  }
  // All of them are recorded before any is cut: a cut that fails must not leave half a step behind.
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  const float* logits = step.logits != nullptr ? static_cast<const float*>(step.logits->data) : step.received.data();
  const std::span rows(logits, sessions.size() * n_vocab);
  for (std::size_t i = 0; i < sessions.size(); ++i) {
    sessions[i]->impl().record_step(tokens[i], rows.subspan(i * n_vocab, n_vocab), seconds.count());
  }
  std::vector<CutError::Failure> failures;
  for (std::size_t i = 0; i < sessions.size(); ++i) {
    try {
      sessions[i]->impl().cut_after_decode();
    } catch (const Error& error) {
      if (pipeline.is_split()) throw;  // other ranks are in the middle of this cut
      failures.push_back({.session = i, .code = error.code(), .message = error.what()});
    } catch (const std::exception& error) {
      if (pipeline.is_split()) throw;
      failures.push_back({.session = i, .code = ErrorCode::kInternal, .message = error.what()});
    }
  }
  if (!failures.empty()) throw CutError(std::move(failures));
}

CutError::CutError(std::vector<Failure> the_failures)
    : Error(the_failures.at(0).code,
            "the token was decoded, but the cache could not be cut after it: " + the_failures.at(0).message),
      failures(std::move(the_failures)) {}

}  // namespace winnow
