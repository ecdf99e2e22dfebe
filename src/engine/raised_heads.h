// Stores heads that lose too much by codes in more bits; where the budget is one of bytes, all heads keep fewer entries
// for it.
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

// Returns whether heads of such a session are stored in more bits where codes would lose too much: there are types for
// that, and the budget is no loss, which bounds that of codes by itself.
bool raises_heads(const Session::Impl& session);

// Marks, before a layer is cut, the heads that would lose more in the cache's types than CodeCost allows: their entries
// are stored in the types of entries that follow a cut, the others' in the cache's own. Does nothing where the layer
// has no reference rows or the cache no such types.
//   feedback: [n_kv_head] the feedback that keys are coded with; empty: none
void choose_raised_heads(RaggedCache& cache, const LayerView& view,
                         std::span<const std::shared_ptr<const kernels::CodeFeedback>> feedback,
                         const ParallelFor& parallel_for);

// Returns whether raised heads of such a session have to be paid for: its budget is one of bytes. Its cut then has to
// allow_narrowing().
bool pays_for_raised_heads(const Session::Impl& session);

// Narrows a cut of `total` entries, after its last layer, until the stored entries take no more bytes than they would
// with no head raised, if possible. All ranks of a pipeline call it together.
void pay_for_raised_heads(Session::Impl& session, Cut& cut, std::int64_t total, const ParallelFor& parallel_for);

}  // namespace winnow
