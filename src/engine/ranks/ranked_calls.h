// An engine's calls over several ranks: what all take part in is done together, and where the first one leads
// (EngineOptions::is_led) it tells the others of each, so that they make the same ones.
#pragma once

#include "engine/calls.h"
#include "engine/ranks/leader.h"

namespace winnow {

class RankedCalls final : public EngineCalls {
 public:
  // What it refers to has to outlive it.
  RankedCalls(const Pipeline& pipeline, bool is_led) : pipeline_(pipeline), leader_(pipeline, is_led) {}

  std::unique_ptr<Session::Impl> open(std::shared_ptr<Engine> engine, const SessionOptions& options) override;
  std::unique_ptr<Session::Impl> load(std::shared_ptr<Engine> engine, const std::string& path) override;
  std::vector<std::int32_t> positions(const Session::Impl& session, int layer, int kv_head) override;
  SessionStatistics statistics(const Session::Impl& session) override;
  void forget(std::uint64_t number) override;
  void save(const Session::Impl& session, const std::string& path) override;
  std::unique_ptr<Session::Impl> fork(const Session::Impl& session) override;
  void truncate(Session::Impl& session, std::int32_t n_tokens) override;
  void clear(Session::Impl& session) override;
  void begin_prefill(Prefill::Impl& prefill) override;
  void step_prefill(Prefill::Impl& prefill, const std::function<bool(bool more)>& advanced) override;
  void decode(Engine::Impl& engine, std::span<Session* const> sessions, std::span<const Token> tokens) override;
  void start_step(Engine::Impl& engine, std::span<Session* const> sessions, std::span<const Token> tokens) override;
  void finish_step(Engine::Impl& engine) override;
  std::vector<RankMemory> memory(const RankMemory& own) override;
  void rest(Engine::Impl& engine) override;
  void end() override { leader_.tell(LedCall::kEnd); }

 private:
  void tell_prefill(Prefill::Impl& prefill);
  void tell_step(LedCall call, std::span<Session* const> sessions, std::span<const Token> tokens);
  // Whether all ranks have the same slices of the prefill: else all of it is one.
  bool has_slices(const Prefill::Impl& prefill) const;
  // What ranks do of it before anything else may follow: on all of them it needs nothing that another one does later.
  void run_slice(Prefill::Impl& prefill, const std::function<void(bool more)>& advanced);

  const Pipeline& pipeline_;
  Leader leader_;
};

}  // namespace winnow
