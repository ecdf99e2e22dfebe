// The common part of the two ways that a prompt or turn is fed: layer_prefill.h and append_prefill.h.
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

// Runs forward passes step by step, one batch of rows through one layer at a time; the two ways say what follows a
// layer and a pass. The engine's mutex is held during all calls.
struct Prefill::Impl {
  Impl(std::shared_ptr<Engine> the_engine, std::vector<Session::Impl*> the_sessions, std::span<const Token> the_tokens,
       const PrefillOptions& the_callbacks);
  virtual ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // How several ranks split the prefill into slices (RankedCalls).
  struct Slices {
    bool is_told = false;      // the other ranks have been told of the prefill
    bool is_sliced = false;    // false: the whole prefill is one slice
    int layer = 0;             // the layer that the next slice of the suffixes ends with
    std::uint64_t number = 0;  // its number among the ranks that this one leads; 0: none
  };

  // Begins the first pass, or the next one after an end_pass that returned true.
  virtual void begin_pass() = 0;
  // Called before the rows of a part of the late repeat go through a layer.
  virtual void begin_repeat(int /*layer*/, const RepeatedPart& /*part*/) {}
  // Called once all rows of the pass have been through this layer.
  virtual void end_layer(int layer) = 0;
  // Ends a pass whose rows have been through all layers; returns whether there is another.
  virtual bool end_pass() = 0;
  // Applies what other ranks have sent of the layers before `end`, which may shrink what own layers keep.
  virtual void receive_layers_before(int /*end*/) {}
  // Restores the sessions to what they were. Returns whether the tokens stay fed all the same: if only the cut that
  // followed them has failed.
  virtual bool undo() = 0;

  // Returns the plan of a pass of these tokens through the layers that are here.
  ForwardPlan forward_plan(std::span<const Token> rows, std::int32_t first_position) const;
  void begin_forward(const ForwardPlan& plan, EntrySink& sink, RecurrentState& state,
                     std::vector<QueryEvidence*> recorders);
  // Makes the callbacks for a pass that is through. Returns the logits [n_vocab] of its last row, or none if only
  // hidden states are asked for.
  std::vector<float> read_output();
  // Runs one step of the pass, or ends it. Returns whether there is more.
  bool advance();
  // Undoes the prefill, frees the sessions, and lets other ranks know.
  void give_up();
  Engine::Impl& engine_impl() const { return engine->impl(); }

  const std::shared_ptr<Engine> engine;
  const std::vector<Session::Impl*> sessions;
  const std::vector<Token> tokens;
  const PrefillOptions callbacks;
  std::optional<ForwardPass> pass;
  std::int64_t work_total;       // layers x rows of all passes
  std::int64_t work_before = 0;  // of the passes that have ended
  double seconds = 0;            // seconds spent in all steps
  bool is_append = false;        // begun by Engine::start_append
  std::exception_ptr refusal;    // an error that all ranks have found together: their engines go on
  Slices slices;
  // The sessions are free again once it is not under way.
  enum class Stage { kUnderWay, kFed, kUndone } stage = Stage::kUnderWay;
};

// Checks the sessions and begins a prefill in the way that they need. Throws what Engine::start_prefill throws.
std::unique_ptr<Prefill::Impl> start_prefill(const std::shared_ptr<Engine>& engine, std::span<Session* const> sessions,
                                             std::span<const Token> tokens, const PrefillOptions& callbacks,
                                             const LayerObserver* observer = nullptr);

}  // namespace winnow
