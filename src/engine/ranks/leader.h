// How the first rank leads the others (EngineOptions::is_led): it sends them the calls that its program makes, so that
// they make the same ones.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <ostream>
#include <vector>

#include "engine/ranks/pipeline.h"

namespace winnow {

// The kind of a call, with its fields. Sessions and prefills are identified by numbers.
enum class LedCall : std::uint8_t {
  kOpen,       // session, options
  kLoad,       // session, path
  kSave,       // session, path
  kFork,       // session, the new one
  kTruncate,   // session, tokens
  kClear,      // session
  kPrefill,    // sessions, tokens, whether logits and whether hidden states are called back, prefill: its first slice
  kAppend,     // the same fields, with one session
  kSlice,      // prefill: its next slice
  kDecode,     // sessions, tokens
  kStartStep,  // likewise
  kFinishStep,
  kStatistics,  // session
  kPositions,   // session, layer, KV head
  kMemory,
  kRest,
  kEnd,
};

// Sends calls to the ranks that this one leads. Used with the engine's mutex held, except drop().
class Leader {
 public:
  // The pipeline must outlive the leader.
  Leader(const Pipeline& pipeline, bool is_led) : pipeline_(pipeline), leads_(is_led && pipeline.is_leading()) {}

  bool leads() const { return leads_; }
  // Returns a new number for a session or prefill; 0 where this rank does not lead.
  std::uint64_t new_number() { return leads_ ? ++n_numbers_ : 0; }
  // Forgets an ended session or prefill; the other ranks learn of it with the next call.
  void drop(std::uint64_t number);
  // Sends a call: before one that all ranks take part in, or after one that each makes by itself, once it has succeeded
  // here. Does nothing where this rank does not lead.
  void tell(LedCall call, const std::function<void(std::ostream&)>& put_fields = {});

 private:
  const Pipeline& pipeline_;
  const bool leads_;
  std::uint64_t n_numbers_ = 0;
  std::mutex mutex_;  // guards dropped_
  std::vector<std::uint64_t> dropped_;
};

}  // namespace winnow
