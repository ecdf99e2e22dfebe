// A look at the keys, values and queries of every layer that methods cut, for those who study what eviction does:
// calibration, analyses.
#pragma once

#include <functional>
#include <span>

#include "winnow/api.h"
#include "winnow/layer_view.h"
#include "winnow/session.h"

namespace WINNOW_API winnow {

// Looks at one layer after the other, in order. The view and all it points at live until on_layer returns.
struct LayerObserver {
  EvidenceNeeds needs;
  std::function<void(const LayerView& view, const ParallelFor& parallel_for)> on_layer;
};

// Session::prefill of an empty session layer by layer; the observer sees each layer with the whole prompt's keys and
// values, before the session's own method cuts it. Throws what Session::prefill throws.
void prefill_observed(Session& session, std::span<const Token> tokens, const LayerObserver& observer,
                      const PrefillOptions& options = {});

// Engine::prefill likewise: one look at each layer, before any of the sessions cuts it. Throws what Engine::prefill
// throws.
void prefill_observed(Engine& engine, std::span<Session* const> sessions, std::span<const Token> tokens,
                      const LayerObserver& observer, const PrefillOptions& options = {});

// A session that saves queries beyond what its own method asks for: needs.window_rows of the last ones, moments.
Session open_observed(Engine& engine, const SessionOptions& options, const EvidenceNeeds& needs);

// Shows every such layer of what is stored, with the queries that the session has saved (observer.needs is not read:
// see open_observed).
void observe_stored(Session& session, const LayerObserver& observer);

}  // namespace winnow
