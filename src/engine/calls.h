// The calls that a program makes of an engine, as one machine carries them out. RankedCalls (engine/ranks) does so over
// several.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "winnow/session.h"

namespace winnow {

// Carries out calls whose arguments the caller has checked. The engine's mutex is held, except where a comment says
// otherwise.
class EngineCalls {
 public:
  virtual ~EngineCalls() = default;

  // These four are called without the mutex: sessions share only the page pool, and others may compute meanwhile.
  virtual std::unique_ptr<Session::Impl> open(std::shared_ptr<Engine> engine, const SessionOptions& options);
  virtual std::unique_ptr<Session::Impl> load(std::shared_ptr<Engine> engine, const std::string& path);
  virtual std::vector<std::int32_t> positions(const Session::Impl& session, int layer, int kv_head);
  virtual SessionStatistics statistics(const Session::Impl& session);
  // The session or prefill of this number has ended. Called with or without the mutex.
  virtual void forget(std::uint64_t /*number*/) {}

  virtual void save(const Session::Impl& session, const std::string& path);
  virtual std::unique_ptr<Session::Impl> fork(const Session::Impl& session);
  virtual void truncate(Session::Impl& session, std::int32_t n_tokens);
  virtual void clear(Session::Impl& session);

  virtual void begin_prefill(Prefill::Impl& prefill);
  // Runs one step, or as many as all ranks need to run together. `advanced` is called after each with whether there is
  // more, and returns whether to go on.
  virtual void step_prefill(Prefill::Impl& prefill, const std::function<bool(bool more)>& advanced);

  virtual void decode(Engine::Impl& engine, std::span<Session* const> sessions, std::span<const Token> tokens);
  virtual void start_step(Engine::Impl& engine, std::span<Session* const> sessions, std::span<const Token> tokens);
  virtual void finish_step(Engine::Impl& engine);

  virtual std::vector<RankMemory> memory(const RankMemory& own) { return {own}; }
  // Frees what is kept for the next computation.
  virtual void rest(Engine::Impl& engine);
  // The engine is being destroyed. Called without the mutex.
  virtual void end() {}
};

}  // namespace winnow
