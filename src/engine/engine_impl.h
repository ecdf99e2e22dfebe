// What is behind winnow::Engine and winnow::Session.
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
#include "engine/calls.h"
#include "engine/evidence/query_evidence.h"
#include "engine/executor.h"
#include "engine/ranks/pipeline.h"
#include "engine/recurrent_state.h"
#include "eviction/cut/cut.h"
#include "model/model_impl.h"
#include "model/rotation.h"
#include "winnow/layer_view.h"
#include "winnow/session.h"

namespace winnow {

// A step of decoding.
struct DecodeStep {
  std::vector<Session::Impl*> sessions;  // null: gone meanwhile
  std::vector<Token> tokens;             // one of each
  bool has_logits = false;               // the sessions have them
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
};

struct Engine::Impl {
  Impl(std::shared_ptr<const Model> model, const EngineOptions& options);

  // A step of decoding, and its two parts: tokens of sessions that check_step has let through.
  void decode(std::span<Session* const> sessions, std::span<const Token> tokens);
  void start_step(std::span<Session* const> sessions, std::span<const Token> tokens);
  void finish_step();
  // The session goes while a step of it is under way.
  void forget(const Session::Impl& session);
  // Nobody computes for a while: gives back what is kept for the next time, on all ranks where they are led.
  void rest();
  ParallelFor parallel_for() { return executor->parallel_for(); }

  const std::shared_ptr<const Model> model;
  const EngineOptions options;
  const std::shared_ptr<PagePool> pool;
  const Pipeline pipeline;  // the machines that hold the other layers; mostly none
  const std::unique_ptr<EngineCalls> calls;
  const LayerRange layers;                // what this machine computes: mostly all
  int most_threads = 0;                   // of a rank: what estimates go by, which are the same on all of them
  const std::vector<Rotation> rotations;  // [n_layer]
  std::mutex mutex;                       // held by every public call that computes
  std::unique_ptr<Executor> executor;     // computes
  std::deque<DecodeStep> steps;           // under way, in the order in which they were started
};

struct Session::Impl {
  Impl(std::shared_ptr<Engine> engine, const SessionOptions& options);
  // A fork.
  Impl(const Impl& other);
  ~Impl();
  Impl& operator=(const Impl&) = delete;

  Engine::Impl& engine_impl() const { return engine->impl(); }
  const Model::Impl& model() const { return engine_impl().model->impl(); }
  std::int32_t n_tokens() const { return static_cast<std::int32_t>(tokens.size()); }

  // Back to a session that was just opened.
  void reset();
  // Back to n of its tokens, which truncatable() allows.
  void truncate(std::int32_t n);

  // Throws while a Prefill or a step holds the session.
  void check_idle() const;
  // Throws unless these tokens can be fed now.
  void check_tokens(std::span<const Token> more) const;
  // Entries stored by all ranks in the layers that methods cut.
  std::int64_t n_cut_entries() const;
  // After a cut: every rank tells what its heads hold. The engine's mutex is held.
  void gather_cut_entries();
  // Of what this machine holds.
  std::vector<std::int32_t> own_positions(int layer, int kv_head) const;
  SessionStatistics own_statistics() const;
  // What everything is cut to: options.budget, or what it came to where it names a loss.
  Budget budget() const;
  // The first prompt was cut by it; there is one in options.budget->most() only before.
  void take_promise(const LossPromise& promise);
  void set_fine_part(double part);  // of what later cuts keep
  // The total T of entries for a sequence of n tokens.
  std::int64_t total_entries(std::int32_t n) const;

  // RaggedCache::settle on all threads, after a turn; the engine's mutex is held.
  void settle_cache();
  // Cuts what is stored to `total` entries if it is over it.
  void cut_to_total(std::int64_t total);
  // Throws what a cut to `new_total` entries would, once n_more tokens have been fed: before they are.
  void check_cut(std::int32_t n_more, std::int64_t new_total) const;
  void check_cut_after_decode() const;
  // The total T of a cut while decoding. A fraction is one of the prompt; tokens and bytes are what they are, although
  // a prompt shorter than the budget had fewer entries.
  std::int64_t decode_total(std::int32_t n) const;
  // Makes room for record_step, which then cannot fail.
  void reserve_step();
  // A step fed `token`; its logits [n_vocab].
  void record_step(Token token, std::span<const float> row, double seconds);
  // What options.decode_cut asks for after a decoded token.
  void cut_after_decode();
  // A one-shot cut over the stored entries.
  void run_cut(const CutShape& shape, int max_window_rows);
  void note_head_budgets();
  void note_sizes(std::size_t hidden_bytes, std::size_t staging_bytes);

  std::shared_ptr<Engine> engine;
  SessionOptions options;
  CacheShape shape;    // of all layers
  RaggedCache cache;   // of those that this machine holds: others have no heads there
  EntryScores scores;  // where the method needs those of earlier cuts
  RecurrentState recurrent;
  QueryEvidence evidence;
  std::vector<Token> tokens;
  std::vector<float> logits;  // [n_vocab] after the last token; empty before the first
  std::int64_t total = 0;     // T of the last prompt or turn; 0 where nothing is evicted
  std::vector<std::int32_t>
      head_budgets;  // of the heads that were cut with the last prompt; empty if it was kept whole
  // Of the heads that other ranks hold and methods cut, when that was last gathered; since then one entry more for each
  // token.
  std::vector<std::int32_t> gathered;  // [n_cut_heads], 0 for own ones; empty before the first time
  std::int32_t gathered_at = 0;        // tokens
  std::int32_t decoded_since_cut = 0;
  bool is_prefilling = false;
  bool is_stepping = false;  // in one of Engine::Impl::steps
  SessionStatistics statistics;
  std::uint64_t number = 0;  // where this rank leads others: what it is called there
};

}  // namespace winnow
