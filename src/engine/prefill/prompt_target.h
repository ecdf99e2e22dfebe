// A session that a prompt is read into layer by layer, and its part of each layer.
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

// Stores and cuts one session's part of every layer of a prompt.
class PromptTarget {
 public:
  // Throws what Session::Impl::check_tokens throws, and Error(kInvalidArgument) for a cut that cannot be made.
  PromptTarget(Session::Impl& session, std::span<const Token> tokens);

  Session::Impl& session() const { return *session_; }
  bool has_cut() const { return cut_ != nullptr; }  // false: all is kept
  bool refits() const { return has_cut() && session_->options.eviction.fit == Fit::kValues; }
  // Returns whether the size of the cut is found once all rows have passed all layers, because the budget names a loss.
  bool promises() const { return has_cut() && has_loss_; }

  // Stores the last n entries of a layer.
  void keep_last(const LayerViews& layer, std::int32_t n);
  // Measures what codes cost in a layer that is not to be cut, if the session reports it
  // (SessionStatistics::code_loss).
  void measure_codes(const LayerView& view);
  // Stores all entries of a layer that is not to be cut.
  void keep_all(const LayerViews& layer);
  // Stores what the method keeps of a layer, and drops what it no longer keeps of the layers before.
  void cut(const LayerViews& layer, LayerScoring& scoring);
  // Adds a layer that another rank holds to the cut: drops what is no longer kept of own layers.
  void apply_remote_cut(int layer, std::span<const std::byte> summary);
  // Finds the smallest cut that keeps to the loss, and makes it: once all layers are cut, before values are refitted.
  void meet_loss_target(const HeldOutText& text);
  // Narrows the cut until heads that are stored in more bits fit in the same bytes; called at the same time.
  void pay_for_raised_heads();
  // Adds seconds that eviction took outside of these functions.
  void add_eviction_time(double seconds) { evict_s_ += seconds; }
  // Completes the session after the last layer. suffix_s: the seconds of the pass for KVzip's scores.
  void finish(std::span<const Token> tokens, std::span<const float> logits, double suffix_s);

 private:
  Session::Impl* session_;
  // Stores these entries of a layer in every head, those in `high` in more bits.
  void append(const LayerViews& layer, std::span<const std::int32_t> entries, std::span<const std::int32_t> high);

  bool has_loss_ = false;
  std::optional<LossPromise> promise_;
  std::int64_t total_ = 0;
  std::unique_ptr<Cut> cut_;
  double evict_s_ = 0;
};

}  // namespace winnow
