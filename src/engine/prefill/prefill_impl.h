// A prompt or turn on its way into sessions: what its two ways, layer_prefill.h and append_prefill.h, have in common.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/engine_impl.h"
#include "engine/forward.h"
#include "winnow/observe.h"

namespace winnow {

// Prefill::step takes one batch of rows through one layer, again and again; its ways say what follows a layer and a
// pass. All calls are made with the engine's mutex held.
struct Prefill::Impl {
  Impl(std::shared_ptr<Engine> the_engine, std::vector<Session::Impl*> the_sessions, std::span<const Token> the_tokens,
       const PrefillOptions& the_callbacks);
  virtual ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // How several ranks go through it (RankedCalls).
  struct Slices {
    bool is_told = false;      // of the first slice
    bool is_sliced = false;    // else all of it is one
    int layer = 0;             // that the next slice of the suffixes ends with
    std::uint64_t number = 0;  // where this rank leads others: what it is called there
  };

  // Makes the first pass, or the one after an end_pass that returned true.
  virtual void begin_pass() = 0;
  // All rows of the pass have been through this layer.
  virtual void end_layer(int layer) = 0;
  // They have been through all layers. Ends the pass; returns whether there is another.
  virtual bool end_pass() = 0;
  // What other ranks have told of the layers before this one, which may shrink what own layers keep.
  virtual void receive_layers_before(int /*end*/) {}
  // Puts the sessions back as they were.
  virtual void undo() = 0;

  // A pass of these tokens through the layers that are here.
  ForwardPlan forward_plan(std::span<const Token> rows, std::int32_t first_position) const;
  void begin_forward(const ForwardPlan& plan, EntrySink& sink, RecurrentState& state,
                     std::vector<QueryEvidence*> recorders);
  // What the callbacks ask for of a pass that is through; the logits [n_vocab] of its last row, or none.
  std::vector<float> read_output();
  // One step of the pass, or its end. Returns whether there is more.
  bool advance();
  // Undone, and other ranks hear of it.
  void give_up();
  Engine::Impl& engine_impl() const { return engine->impl(); }

  const std::shared_ptr<Engine> engine;
  const std::vector<Session::Impl*> sessions;
  const std::vector<Token> tokens;
  const PrefillOptions callbacks;
  std::optional<ForwardPass> pass;
  std::int64_t work_total;       // layers x rows of all passes
  std::int64_t work_before = 0;  // of the passes that have ended
  double seconds = 0;            // of all steps
  bool is_append = false;        // Engine::start_append's
  std::exception_ptr refusal;    // what all ranks have found together: they go on without this prefill
  Slices slices;
  bool is_done = false;
  bool is_over = false;  // done or undone: the sessions are free
};

// Throw what Engine::start_prefill does.
std::unique_ptr<Prefill::Impl> start_prefill(const std::shared_ptr<Engine>& engine, std::span<Session* const> sessions,
                                             std::span<const Token> tokens, const PrefillOptions& callbacks,
                                             const LayerObserver* observer = nullptr);

}  // namespace winnow
