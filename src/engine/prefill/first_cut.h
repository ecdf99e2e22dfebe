// FirstCut says how a session's first prompt will be cut, as far as that is known before any of it is read.
#pragma once

#include <cstdint>

#include "cache/cache_shape.h"
#include "winnow/session.h"

namespace winnow {

struct FirstCut {
  // The entries that are kept in the layers that methods cut: so many, or at most so many where the budget names a
  // loss. All of them where nothing is cut.
  std::int64_t total = 0;
  // The tokens at the prompt's end on which the loss is measured that the budget names; 0: it names none, or the prompt
  // is too short, and all of it is kept.
  std::int32_t n_held_out = 0;
};

// Returns it for a prompt of n tokens. options: checked. Throws Error(kInvalidArgument) for a budget that cannot hold
// one page per head.
FirstCut first_cut(const SessionOptions& options, const CacheShape& shape, std::int32_t n);

}  // namespace winnow
