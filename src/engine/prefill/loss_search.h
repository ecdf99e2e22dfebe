// Finds the smallest cut of a prompt that is expected to cost no more than a given loss (Budget::Unit::kLoss).
//
// The loss is measured: the last tokens of the prompt are held out, as if the prompt ended before them. The entries
// that a cut keeps of those before them, with values refitted by reference rows from before them alone, read them once
// more. The loss is the mean KL divergence of these predictions from those of the prompt's own pass, which saw all
// entries, without the first quarter of the held-out tokens. Cuts are tried on a fork, from the smallest on.
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

// The last tokens of a prompt, which LossSearch reads again.
struct HeldOutText {
  std::span<const Token> tokens;
  std::int32_t first_position = 0;
  // [tokens][n_embd] after the last layer: the rows of the prompt's own pass, where the executor keeps them.
  float* hidden = nullptr;
  // The attention of rows before first_position over the entries before it; null where values are not refitted.
  const ReferenceAttention* reference = nullptr;
};

// Returns how many tokens at the end of a prompt of n tokens are held out; 0 if it is too short to measure a loss.
std::int32_t held_out_tokens(std::int32_t n);

// Says that even the largest cut exceeds the loss. All ranks of a pipeline find it together.
class LossRefusal : public Error {
 public:
  using Error::Error;
};

// Searches the cut for one session. Not thread-safe; all ranks of a pipeline make the same calls.
class LossSearch {
 public:
  // session: holds what `cut` has kept by options.budget->most(); values to be refitted are not yet coded. All must
  // outlive the search.
  LossSearch(Session::Impl& session, Cut& cut, const HeldOutText& text);

  // Returns the smallest cut that keeps to the loss, with all that were tried. Throws LossRefusal(kInvalidArgument).
  LossPromise find() const;
  // Return the number of entries that a budget in bytes comes to, and the fraction of them that is stored in more bits.
  std::int64_t total(const Budget& budget) const;
  double high_fraction(const Budget& budget) const { return session_.options.eviction.bits.high_fraction_for(budget); }

 private:
  // Returns the loss of a cut to this budget, in nats a token.
  double measure(const Budget& budget) const;

  Session::Impl& session_;
  Cut& cut_;
  const HeldOutText& text_;
};

}  // namespace winnow
