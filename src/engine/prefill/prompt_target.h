// One of the sessions that a prompt is read into layer by layer, and what becomes of each layer there.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "engine/engine_impl.h"
#include "engine/evidence/layer_views.h"
#include "eviction/cut.h"

namespace winnow {

class PromptTarget {
 public:
  // Throws what the session has against these tokens, and Error(kInvalidArgument) for a cut that cannot be made.
  PromptTarget(Session::Impl& session, std::span<const Token> tokens);

  Session::Impl& session() const { return *session_; }
  bool is_cut() const { return cut_ != nullptr; }  // false: all is kept
  bool needs(bool EvidenceNeeds::*what) const { return is_cut() && session_->evidence.needs().*what; }
  bool refits() const { return is_cut() && session_->options.eviction.fit == Fit::kValues; }

  // Stores the last n entries of a layer.
  void keep_last(const LayerViews& layer, std::int32_t n);
  // Stores what the method keeps of a layer, and drops what it no longer keeps of those before.
  void cut(const LayerViews& layer, LayerScoring& scoring);
  // The same for a layer that another rank holds: drops what is no longer kept of own ones.
  void cut_elsewhere(int layer, std::span<const std::byte> summary);
  // What eviction takes besides.
  void charge(double seconds) { evict_s_ += seconds; }
  // After the last layer. follower_s: what the pass for KVzip's scores took.
  void finish(std::span<const Token> tokens, std::span<const float> logits, double follower_s);

 private:
  Session::Impl* session_;
  std::int64_t total_ = 0;
  std::unique_ptr<Cut> cut_;
  double evict_s_ = 0;
};

}  // namespace winnow
