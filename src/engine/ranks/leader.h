// Ranks of which the first one leads (EngineOptions::is_led): what it tells the others of the calls that its program
// makes, so that they make the same ones.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <ostream>
#include <vector>

#include "engine/ranks/pipeline.h"

namespace winnow {

// Sessions and prefills under way are numbers here.
enum class LedCall : std::uint8_t {
  kOpen,       // session, options
  kLoad,       // session, path
  kSave,       // session, path
  kFork,       // session, the new one
  kTruncate,   // session, tokens
  kClear,      // session
  kPrefill,    // sessions, tokens, whether logits and whether hidden states are called back, prefill: its first slice
  kAppend,     // likewise of one session
  kSlice,      // prefill: its next one
  kDecode,     // sessions, tokens
  kStartStep,  // likewise
  kFinishStep,
  kStatistics,  // session
  kPositions,   // session, layer, KV head
  kMemory,
  kRest,
  kEnd,
};

// Used with the engine's mutex held, but for drop().
class Leader {
 public:
  // What it refers to has to outlive it.
  Leader(const Pipeline& pipeline, bool is_led) : pipeline_(pipeline), leads_(is_led && pipeline.is_leading()) {}

  bool leads() const { return leads_; }
  std::uint64_t new_number() { return leads_ ? ++n_numbers_ : 0; }
  // The session is gone, or the prefill was given up: others hear it with the next call.
  void drop(std::uint64_t number);
  // Before a call that others take part in, and after one that each makes by itself: what is told has gone well here.
  // Nothing where nobody is led.
  void tell(LedCall call, const std::function<void(std::ostream&)>& put_fields = {});

 private:
  const Pipeline& pipeline_;
  const bool leads_;
  std::uint64_t n_numbers_ = 0;
  std::mutex mutex_;  // of the next
  std::vector<std::uint64_t> dropped_;
};

}  // namespace winnow
