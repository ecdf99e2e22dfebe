// Feedback for coding the keys of a layer: it weighs their errors by the layer's reference rows, queries as they may
// follow the prompt or turn (kernels/entries/code_feedback.h).
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "cache/ragged_cache.h"
#include "winnow/layer_view.h"
#include "winnow/session.h"

namespace winnow {

// Returns whether keys of such a session are coded with feedback. They are not where no method cuts: such a session can
// be truncated to any of its tokens, and its codes would depend on tokens that are gone.
bool feeds_back(const SessionOptions& options);

// The feedback of each KV head; null where the layer's reference rows give none.
using KeyFeedback = std::vector<std::shared_ptr<const kernels::CodeFeedback>>;
// Computes the feedback of a layer's KV heads from the second moments of its reference rows.
KeyFeedback key_feedback(const LayerView& view, const ParallelFor& parallel_for);
// Hands the feedback to a layer's heads in the cache.
void set_feedback(RaggedCache& cache, int layer, const KeyFeedback& feedback);

// Returns the bytes of feedback for all heads that methods cut, which a prompt or turn takes while it is read.
std::size_t key_feedback_bytes(const CacheShape& shape);

}  // namespace winnow
