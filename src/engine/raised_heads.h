// Heads that lose too much by codes are stored in more bits, and where the budget is one of bytes all heads keep fewer
// entries for it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "cache/ragged_cache.h"
#include "engine/engine_impl.h"
#include "eviction/cut/cut.h"
#include "kernels/entries/code_feedback.h"
#include "winnow/layer_view.h"

namespace winnow {

// Before a layer is cut: heads that would lose more in the cache's types than code_cost.h allows store what stays in
// the types of what follows a cut; the others in the cache's own. Nothing changes where the layer has no reference rows
// or the cache no such types.
//   feedback: [n_kv_head] with which keys are coded; empty: none
void choose_raised_heads(RaggedCache& cache, const LayerView& view,
                         std::span<const std::shared_ptr<const kernels::CodeFeedback>> feedback,
                         const ParallelFor& parallel_for);

// Whether heads of such a session may have to be paid for: the cut has to allow_narrowing().
bool pays_for_raised_heads(const Session::Impl& session);

// After a cut's last layer, with its total of entries: narrows it until what is stored takes no more bytes than it
// would with no head raised, if it can. The ranks of a pipeline do it together.
void pay_for_raised_heads(Session::Impl& session, Cut& cut, std::int64_t total, const ParallelFor& parallel_for);

}  // namespace winnow
