#include "engine/calls.h"

#include "engine/engine_impl.h"
#include "engine/prefill/prefill_impl.h"
#include "engine/session_file.h"

namespace winnow {

std::unique_ptr<Session::Impl> EngineCalls::open(std::shared_ptr<Engine> engine, const SessionOptions& options) {
  return std::make_unique<Session::Impl>(std::move(engine), options);
}

std::unique_ptr<Session::Impl> EngineCalls::load(std::shared_ptr<Engine> engine, const std::string& path) {
  return load_session(std::move(engine), path);
}

std::vector<std::int32_t> EngineCalls::positions(const Session::Impl& session, int layer, int kv_head) {
  return session.own_positions(layer, kv_head);
}

SessionStatistics EngineCalls::statistics(const Session::Impl& session) { return session.own_statistics(); }

void EngineCalls::save(const Session::Impl& session, const std::string& path) { save_session(session, path); }

std::unique_ptr<Session::Impl> EngineCalls::fork(const Session::Impl& session) {
  return std::make_unique<Session::Impl>(session);
}

void EngineCalls::truncate(Session::Impl& session, std::int32_t n_tokens) { session.truncate(n_tokens); }

void EngineCalls::clear(Session::Impl& session) { session.reset(); }

void EngineCalls::begin_prefill(Prefill::Impl& prefill) { prefill.begin_pass(); }

void EngineCalls::step_prefill(Prefill::Impl& prefill, const std::function<bool(bool more)>& advanced) {
  advanced(prefill.advance());
}

void EngineCalls::decode(Engine::Impl& engine, std::span<Session* const> sessions, std::span<const Token> tokens) {
  engine.decode(sessions, tokens);
}

void EngineCalls::start_step(Engine::Impl& engine, std::span<Session* const> sessions, std::span<const Token> tokens) {
  engine.start_step(sessions, tokens);
}

void EngineCalls::finish_step(Engine::Impl& engine) { engine.finish_step(); }

void EngineCalls::rest(Engine::Impl& engine) {
  engine.executor->release_step();
  engine.pool->trim();
}

}  // namespace winnow
