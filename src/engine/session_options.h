// What a session's options mean for a model, without a session.
#pragma once

#include <cstdint>

#include "cache/ragged_cache.h"
#include "eviction/cut/cut.h"
#include "model/model_impl.h"
#include "winnow/layer_view.h"
#include "winnow/session.h"

namespace winnow {

// The options with what they leave open filled in. Throws Error(kInvalidArgument) for those that contradict each other.
SessionOptions checked_session_options(SessionOptions options, const Model::Impl& model);

// The functions below take checked options.

// Throws Error(kInvalidArgument) for entry types that do not go with the model's head size.
CacheShape cache_shape(const ModelSpec& spec, const SessionOptions& options);

// The cut of a sequence of n tokens to `total` entries: of the layers that methods cut.
CutShape cut_shape(const CacheShape& shape, std::int32_t n, std::int64_t total);

// Throws Error(kUnsupported) for a method that cannot cut when these options ask for it.
EvidenceNeeds evidence_needs(const SessionOptions& options);

// The total T of entries that a budget allows a sequence of n tokens. Throws Error(kInvalidArgument) for one that
// cannot hold a page per head.
std::int64_t budget_entries(const Budget& budget, const CacheShape& shape, std::int32_t n);

}  // namespace winnow
