// An engine's calls over several ranks: all ranks carry out together what they share, and where the first one leads
// (EngineOptions::is_led) it sends the others each call, so that they make the same ones.
#pragma once

#include "engine/calls.h"
#include "engine/ranks/leader.h"

namespace winnow {

// Carries out an engine's calls on one of several ranks.
class RankedCalls final : public EngineCalls {
 public:
  // The pipeline must outlive it.
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
  // Sends the next slice of a prefill, with the prefill itself before the first slice.
  void tell_prefill(Prefill::Impl& prefill);
  // Sends a step of decoding.
  void tell_step(LedCall call, std::span<Session* const> sessions, std::span<const Token> tokens);
  // Returns whether all ranks have the same slices of the prefill; otherwise the whole prefill is one slice.
  bool has_slices(const Prefill::Impl& prefill) const;
  // Runs one slice: the steps after which no rank needs anything that another one does later, so that other calls may
  // follow.
  void run_slice(Prefill::Impl& prefill, const std::function<void(bool more)>& advanced);

  const Pipeline& pipeline_;
  Leader leader_;
};

}  // namespace winnow
