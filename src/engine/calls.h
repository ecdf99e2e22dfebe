// What a program asks of an engine, as one machine does it. RankedCalls (engine/ranks) does the same over several: the
// engine itself knows of no other.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "winnow/session.h"

namespace winnow {

// Made with the engine's mutex held, but for what a comment excepts. Each checks nothing that its caller can check.
class EngineCalls {
 public:
  virtual ~EngineCalls() = default;

  // Without the mutex: of what sessions share they use the page pool alone, and others compute meanwhile.
  virtual std::unique_ptr<Session::Impl> open(std::shared_ptr<Engine> engine, const SessionOptions& options);
  virtual std::unique_ptr<Session::Impl> load(std::shared_ptr<Engine> engine, const std::string& path);
  virtual std::vector<std::int32_t> positions(const Session::Impl& session, int layer, int kv_head);
  virtual SessionStatistics statistics(const Session::Impl& session);
  // The session is gone, or the prefill was given up.
  virtual void forget(std::uint64_t /*number*/) {}

  virtual void save(const Session::Impl& session, const std::string& path);
  virtual std::unique_ptr<Session::Impl> fork(const Session::Impl& session);
  virtual void truncate(Session::Impl& session, std::int32_t n_tokens);
  virtual void clear(Session::Impl& session);

  virtual void begin_prefill(Prefill::Impl& prefill);
  // One step, or as many as other machines need to do together. `advanced` is called after each with whether there is
  // more, and returns whether to go on.
  virtual void step_prefill(Prefill::Impl& prefill, const std::function<bool(bool more)>& advanced);

  virtual void decode(Engine::Impl& engine, std::span<Session* const> sessions, std::span<const Token> tokens);
  virtual void start_step(Engine::Impl& engine, std::span<Session* const> sessions, std::span<const Token> tokens);
  virtual void finish_step(Engine::Impl& engine);

  virtual std::vector<RankMemory> memory(const RankMemory& own) { return {own}; }
  // Nobody computes for a while.
  virtual void rest(Engine::Impl& engine);
  // The engine goes.
  virtual void end() {}
};

}  // namespace winnow
