// One of the sessions that a prompt is read into layer by layer, and what becomes of each layer there.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "engine/engine_impl.h"
#include "engine/evidence/layer_views.h"
#include "engine/prefill/loss_search.h"
#include "eviction/cut/cut.h"

namespace winnow {

class PromptTarget {
 public:
  // Throws what the session has against these tokens, and Error(kInvalidArgument) for a cut that cannot be made.
  PromptTarget(Session::Impl& session, std::span<const Token> tokens);

  Session::Impl& session() const { return *session_; }
  bool has_cut() const { return cut_ != nullptr; }  // false: all is kept
  bool needs(bool EvidenceNeeds::*what) const { return has_cut() && session_->evidence.needs().*what; }
  bool refits() const { return has_cut() && session_->options.eviction.fit == Fit::kValues; }
  // Whether how much stays is found when all layers are through.
  bool promises() const { return has_cut() && has_loss_; }

  // Whether heads that lose too much by codes are stored in more bits. Where a loss was asked for, that is what holds
  // it.
  bool can_raise_bits() const { return has_cut() && !has_loss_; }

  // Stores the last n entries of a layer.
  void keep_last(const LayerViews& layer, std::int32_t n);
  // Notes what its codes cost of a layer that is not to be cut, where that is to be told
  // (SessionStatistics::code_loss).
  void measure_codes(const LayerView& view);
  // Stores a layer that is not to be cut.
  void keep_all(const LayerViews& layer);
  // Stores what the method keeps of a layer, and drops what it no longer keeps of those before.
  void cut(const LayerViews& layer, LayerScoring& scoring);
  // The same for a layer that another rank holds: drops what is no longer kept of own ones.
  void apply_remote_cut(int layer, std::span<const std::byte> summary);
  // Once all layers are through and before values are refitted: finds the smallest cut that keeps to the loss, and
  // makes it.
  void meet_loss_target(const HeldOutText& text);
  // Likewise: what heads take that are stored in more bits comes out of the same bytes.
  void pay_for_raised_heads();
  // What eviction takes besides.
  void add_eviction_time(double seconds) { evict_s_ += seconds; }
  // After the last layer. suffix_s: what the pass for KVzip's scores took.
  void finish(std::span<const Token> tokens, std::span<const float> logits, double suffix_s);

 private:
  Session::Impl* session_;
  void append(const LayerViews& layer, std::span<const std::int32_t> entries, std::span<const std::int32_t> fine);

  bool has_loss_ = false;
  std::optional<LossPromise> promise_;
  std::int64_t total_ = 0;
  std::unique_ptr<Cut> cut_;
  double evict_s_ = 0;
};

}  // namespace winnow
