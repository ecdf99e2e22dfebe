// How the keys of a layer become codes: by what its reference rows, queries as they may follow the prompt or turn, see
// of their errors (kernels/entries/code_feedback.h).
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "cache/ragged_cache.h"
#include "winnow/layer_view.h"
#include "winnow/session.h"

namespace winnow {

// Whether keys of such a session become codes that feedback changes. Not where no method cuts: such a session can be
// cut back to any of its tokens, and would remember in its codes what came behind.
bool feeds_back(const SessionOptions& options);

// Of each KV head; null where the layer's reference rows say nothing.
using KeyFeedback = std::vector<std::shared_ptr<const kernels::CodeFeedback>>;
KeyFeedback key_feedback(const LayerView& view, const ParallelFor& parallel_for);
void set_feedback(RaggedCache& cache, int layer, const KeyFeedback& feedback);

// What the feedback of all heads that methods cut takes while a prompt or turn is read.
std::size_t key_feedback_bytes(const CacheShape& shape);

}  // namespace winnow
