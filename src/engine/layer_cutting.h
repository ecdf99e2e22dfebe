// Shows a sequence's layers to the eviction policy and carries its decisions out on the cache.
#pragma once

#include <limits>
#include <span>
#include <vector>

#include "engine/engine_impl.h"
#include "eviction/cut.h"

namespace winnow {

// Scores layer `layer` of the session, whose present entries are `heads` [n_kv_head], by at most max_window_rows of the
// last queries; n_tokens is the logical length. Returns the cuts due now.
std::vector<LayerCut> show_layer(Session::Impl& session, Cut& cut, int layer,
                                 std::span<const kernels::HeadEntries> heads, std::int32_t n_tokens,
                                 int max_window_rows = std::numeric_limits<int>::max());

}  // namespace winnow
