// The meaning of a session's options for a model, without a session.
#pragma once

#include <cstdint>

#include "cache/ragged_cache.h"
#include "eviction/cut/cut.h"
#include "model/model_impl.h"
#include "winnow/layer_view.h"
#include "winnow/session.h"

namespace winnow {

// Returns the options with everything that they leave open filled in. Throws Error(kInvalidArgument) for contradictory
// ones, Error(kUnsupported) for ones that the method or the model cannot follow.
SessionOptions checked_session_options(SessionOptions options, const Model::Impl& model);

// The functions below take checked options.

// Returns the shape of a session's cache, with the types of its entries. Throws Error(kInvalidArgument) for entry types
// that do not go with the model's head sizes.
CacheShape cache_shape(const ModelSpec& spec, const SessionOptions& options);

// Returns the shape of a cut of n tokens to `total` entries, in the layers that methods cut.
CutShape cut_shape(const CacheShape& shape, std::int32_t n, std::int64_t total);

// Returns what has to be saved for the cuts of these options. Throws Error(kUnsupported) for a method that cannot cut
// when they ask for it.
EvidenceNeeds evidence_needs(const SessionOptions& options);

// Returns the total T of entries that a budget allows a sequence of n tokens. Throws Error(kInvalidArgument) for a
// budget that cannot hold one page per head.
std::int64_t budget_entries(const Budget& budget, const CacheShape& shape, std::int32_t n);

}  // namespace winnow
