// The three ways in which a prompt reaches sessions: layer by layer, appended, in chunks.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cache/staging_buffer.h"
#include "engine/engine_impl.h"
#include "engine/evidence/reference_attention.h"
#include "engine/observe.h"
#include "engine/prefill/prompt_pass.h"

namespace winnow {

// step() is called with the engine's mutex held. Whoever is destroyed before it is done puts the sessions back as they
// were.
struct Prefill::Impl {
  Impl(std::shared_ptr<Engine> the_engine, std::vector<Session::Impl*> the_sessions, std::span<const Token> the_tokens,
       const PrefillOptions& the_callbacks);
  virtual ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  virtual bool step() = 0;  // on_progress is heard after every step but the last
  virtual std::int64_t work_done() const = 0;
  virtual void undo() = 0;

  // Runs one step with timing, progress and, on failure, undo.
  bool guarded_step();
  Engine::Impl& engine_impl() const { return engine->impl(); }

  const std::shared_ptr<Engine> engine;
  const std::vector<Session::Impl*> sessions;
  const std::vector<Token> tokens;
  const PrefillOptions callbacks;
  std::int64_t work_total = 0;
  double seconds = 0;       // of all steps
  bool is_through = false;  // all rows are through all layers; the step that ends the prefill is left
  bool is_done = false;
  bool is_over = false;  // done or undone: the sessions are free
};

// One prompt into empty sessions, layer by layer, each cut to its own budget.
class LayerPrefill final : public Prefill::Impl {
 public:
  LayerPrefill(std::shared_ptr<Engine> engine, std::vector<Session::Impl*> sessions, std::span<const Token> tokens,
               const PrefillOptions& callbacks, const LayerObserver* observer);
  ~LayerPrefill() override;

  bool step() override;
  std::int64_t work_done() const override { return pass_->work_done(); }
  void undo() override;

 private:
  // One session's part.
  struct Target {
    Session::Impl* session;
    std::unique_ptr<Cut> cut;  // null: all is kept
    std::int64_t total = 0;
    std::size_t recorder = 0;                                 // index of the target whose evidence records for this one
    std::shared_ptr<ReferenceAttention> reference = nullptr;  // where values are refitted; of all with this recorder
    double evict_s = 0;
  };
  void judge_layer(int layer);
  void keep_window(int layer, std::span<const kernels::HeadEntries> heads);
  void cut_layer(int layer, std::span<const kernels::HeadEntries> heads);
  void finish();

  std::vector<Target> targets_;
  std::optional<LayerObserver> observer_;
  std::unique_ptr<QueryEvidence> observed_;
  std::optional<StagingBuffer> staging_;
  std::optional<PromptPass> pass_;
};

// Tokens behind what a session holds, all kept; then, if asked for, a cut of everything to `cut_total` entries.
class AppendPrefill final : public Prefill::Impl {
 public:
  AppendPrefill(std::shared_ptr<Engine> engine, Session::Impl& session, std::span<const Token> tokens,
                const PrefillOptions& callbacks, std::optional<std::int64_t> cut_total);
  ~AppendPrefill() override;

  bool step() override;
  std::int64_t work_done() const override { return pass_->work_done(); }
  void undo() override;

 private:
  Session::Impl& session_;
  std::optional<std::int64_t> cut_total_;
  QueryEvidence before_;
  CacheSink sink_;
  std::optional<PromptPass> pass_;
};

// A first prompt through all layers in chunks, the cache cut after each.
class ChunkedPrefill final : public Prefill::Impl {
 public:
  ChunkedPrefill(std::shared_ptr<Engine> engine, Session::Impl& session, std::span<const Token> tokens,
                 const PrefillOptions& callbacks);
  ~ChunkedPrefill() override;

  bool step() override;
  std::int64_t work_done() const override;
  void undo() override;

 private:
  void begin_chunk();

  Session::Impl& session_;
  std::int64_t total_;
  std::size_t fed_ = 0;  // tokens of finished chunks
  std::size_t chunk_ = 0;
  std::unique_ptr<AppendPrefill> append_;
};

// With the engine's mutex held. Throw what Engine::start_prefill does.
std::unique_ptr<Prefill::Impl> start_prefill(const std::shared_ptr<Engine>& engine, std::span<Session* const> sessions,
                                             std::span<const Token> tokens, const PrefillOptions& callbacks,
                                             const LayerObserver* observer = nullptr);

// The token sequences of KVzip's reconstruction of a context: per 2,048 of its tokens the request to repeat it, the
// last 8 tokens of the part before, the part.
std::vector<std::vector<Token>> reconstruction_parts(const Model& model, std::span<const Token> context);

}  // namespace winnow
