// The implementations of winnow::Engine and winnow::Session.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cache/entry_scores.h"
#include "cache/page_pool.h"
#include "cache/ragged_cache.h"
#include "device/device.h"
#include "engine/call_mutex.h"
#include "engine/calls.h"
#include "engine/evidence/query_evidence.h"
#include "engine/executor.h"
#include "engine/ranks/pipeline.h"
#include "engine/ranks/remote_entries.h"
#include "engine/recurrent_state.h"
#include "eviction/cut/cut.h"
#include "model/model_impl.h"
#include "model/rotation.h"
#include "winnow/layer_view.h"
#include "winnow/session.h"

namespace winnow {

// A step of decoding that is under way.
struct DecodeStep {
  std::vector<Session::Impl*> sessions;  // null: destroyed since the step was started
  std::vector<Token> tokens;             // one for each session
  bool has_logits = false;               // the logits are already in the sessions
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
};

struct Engine::Impl {
  Impl(std::shared_ptr<const Model> model, const EngineOptions& options);

  // Run a step of decoding, whole or in two parts, for sessions and tokens that check_step accepts.
  void decode(std::span<Session* const> sessions, std::span<const Token> tokens);
  void start_step(std::span<Session* const> sessions, std::span<const Token> tokens);
  void finish_step();
  // Throws Error(kInvalidArgument) unless each of these is a session of this engine, given once, that nothing holds.
  void check_sessions(std::span<Session* const> sessions) const;
  // Takes a session that is being destroyed out of the steps under way.
  void forget(const Session::Impl& session);
  // Frees what is kept for the next computation, on all ranks where this one leads them. Called when the engine is
  // idle.
  void rest();
  // Gives back what this rank's last step of decoding took. Locks the engine.
  void release_step();
  ParallelFor parallel_for() { return executor->parallel_for(); }

  const std::shared_ptr<const Model> model;
  const std::shared_ptr<device::Device> device;  // on which layers are computed; null: this machine's processor
  const EngineOptions options;                   // with what the caller left open
  const Pipeline pipeline;                       // the machines that hold the other layers; usually none
  const std::unique_ptr<EngineCalls> calls;
  const LayerRange layers;                // those that this machine computes; usually all
  int most_threads = 0;                   // the most threads of any rank: estimates, the same on all, count with these
  const std::vector<Rotation> rotations;  // [n_layer]
  CallMutex mutex;                        // held by every public call that computes
  std::unique_ptr<Executor> executor;
  const std::size_t kv_bytes_limit;  // as the options set it; 0: none
  const std::shared_ptr<PagePool> pool;
  std::deque<DecodeStep> steps;  // under way, in the order of start_step
};

struct Session::Impl {
  Impl(std::shared_ptr<Engine> engine, const SessionOptions& options);
  // Forks a session.
  Impl(const Impl& other);
  ~Impl();
  Impl& operator=(const Impl&) = delete;

  Engine::Impl& engine_impl() const { return engine->impl(); }
  const Model::Impl& model() const { return engine_impl().model->impl(); }
  std::int32_t n_tokens() const { return static_cast<std::int32_t>(tokens.size()); }

  // Resets to a session that was just opened.
  void reset();
  // Goes back to the first n tokens, which truncatable() allows.
  void truncate(std::int32_t n);

  // Throws Error(kInvalidArgument) while a Prefill or a step holds the session.
  void check_idle() const;
  // Throws unless these tokens can be fed now: kInvalidArgument (none, or outside the vocabulary), kContextFull.
  void check_tokens(std::span<const Token> more) const;
  // Returns the number of entries that all ranks store in the layers that methods cut.
  std::int64_t n_cut_entries() const;
  // Exchanges with the other ranks how many entries each head holds after a cut. The engine's mutex is held.
  void gather_cut_entries();
  // The positions and statistics of the layers that this machine holds.
  std::vector<std::int32_t> own_positions(int layer, int kv_head) const;
  SessionStatistics own_statistics() const;
  // Returns the budget of cuts: options.budget, or, where that names a loss, the size that it came to (before the first
  // prompt: the largest that it may come to).
  Budget budget() const;
  // Notes the promise by which the first prompt was cut; later cuts use its size.
  void take_promise(const LossPromise& promise);
  void set_high_fraction(double fraction);  // of the entries that later cuts keep
  // Returns the total T of entries that the budget allows a sequence of n tokens.
  std::int64_t total_entries(std::int32_t n) const;

  // Runs RaggedCache::settle on all threads after a turn; the engine's mutex is held. Does not throw for lack of
  // memory.
  void settle_cache();
  // Cuts the stored entries to `new_total`, if there are more.
  void cut_to_total(std::int64_t total);
  // Throws what a cut to `new_total` entries would throw once n_more more tokens are fed, before they are.
  void check_cut(std::int32_t n_more, std::int64_t new_total) const;
  // Does the same for the cut that may follow the next decoded token.
  void check_cut_after_decode() const;
  // Returns the total T of a cut while decoding. A fraction is one of the prompt; tokens and bytes are absolute, and a
  // prompt shorter than such a budget had fewer entries.
  std::int64_t decode_total(std::int32_t n) const;
  // Reserves memory, so that record_step cannot fail.
  void reserve_step();
  // Records that a step fed `token` and gave its logits `row` [n_vocab].
  void record_step(Token token, std::span<const float> row, double seconds);
  // Makes the cut that options.decode_cut asks for after a decoded token, if it is due.
  void cut_after_decode();
  // Cuts the stored entries once, scoring by at most max_window_rows of the last queries.
  void run_cut(const CutShape& shape, int max_window_rows);
  // Notes in head_budgets how many entries each head holds; clears it if every head holds all.
  void note_head_budgets();
  // Raises the peaks in `statistics` to these bytes.
  void note_sizes(std::size_t hidden_bytes, std::size_t staging_bytes);

  std::shared_ptr<Engine> engine;
  SessionOptions options;
  CacheShape shape;    // of all layers
  RaggedCache cache;   // of this machine's layers; other layers have no heads in it
  EntryScores scores;  // of earlier cuts, where the method needs them
  RecurrentState recurrent;
  QueryEvidence evidence;
  std::vector<Token> tokens;
  std::vector<float> logits;               // [n_vocab] after the last token; empty before the first
  std::int64_t total = 0;                  // T of the last prompt or turn; 0 where nothing is evicted
  std::vector<std::int32_t> head_budgets;  // [n_cut_heads] kept of the last prompt or turn; empty if all was
  RemoteEntries remote_entries;            // of the layers that other ranks hold
  std::int32_t decoded_since_cut = 0;
  bool is_prefilling = false;
  bool is_stepping = false;  // one of Engine::Impl::steps holds it
  SessionStatistics statistics;
  std::uint64_t number = 0;  // its number among the ranks that this one leads; 0: none
};

}  // namespace winnow
