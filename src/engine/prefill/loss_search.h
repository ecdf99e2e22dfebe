// The smallest cut of a prompt that may be expected to cost no more than a given loss: Budget::Unit::kLoss.
//
// What a cut costs is measured, not guessed from layers: the last tokens of the prompt are held out, as if the prompt
// ended before them. What a cut keeps of the entries before them, with values refitted by reference rows from before
// them alone, reads them once more, and its predictions are compared with those of the prompt's own pass, which saw all
// entries, for all but the first quarter of these tokens. One cut after the other is tried on a fork, from the smallest
// on.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/engine_impl.h"
#include "engine/evidence/reference_attention.h"
#include "eviction/cut/cut.h"
#include "winnow/error.h"

namespace winnow {

// A prompt's last tokens.
struct HeldOutText {
  std::span<const Token> tokens;
  std::int32_t first_position = 0;
  std::vector<float> hidden = {};  // [tokens][n_embd] after the last layer, of the prompt's own pass
  // Of the rows before first_position on the entries before it; null where values are not refitted.
  const ReferenceAttention* reference = nullptr;
};

// How many tokens at the end of a prompt of n are held out; 0: it is too short to tell anything by them.
std::int32_t held_out_tokens(std::int32_t n);

// Not even the largest cut keeps to the loss. The ranks of a pipeline find it together.
class LossRefusal : public Error {
 public:
  using Error::Error;
};

class LossSearch {
 public:
  // session: holds what `cut` has kept, by options.budget->most(); values that are refitted wait for it.
  LossSearch(Session::Impl& session, Cut& cut, const HeldOutText& text);

  // Throws LossRefusal(kInvalidArgument).
  LossPromise find() const;
  // The number of entries that a part of the bytes comes to, and which part of them has more bits.
  std::int64_t total(const Budget& budget) const;
  double finer_part(const Budget& budget) const { return session_.options.eviction.bits.finer_part(budget); }

 private:
  double measure(const Budget& budget) const;

  Session::Impl& session_;
  Cut& cut_;
  const HeldOutText& text_;
};

}  // namespace winnow
