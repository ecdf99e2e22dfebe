// Observers of the keys, values and queries of every layer that methods cut, for calibration and for analyses of
// eviction.
#pragma once

#include <functional>
#include <span>

#include "winnow/api.h"
#include "winnow/layer_view.h"
#include "winnow/session.h"

namespace WINNOW_API winnow {

// A function that is called with the view of one layer after the other, in order, and the evidence that it needs. The
// view and all it points at live until on_layer returns.
struct LayerObserver {
  EvidenceNeeds needs;
  std::function<void(const LayerView& view, const ParallelFor& parallel_for)> on_layer;
};

// Prefills an empty session layer by layer, as Session::prefill. The observer sees each layer with the whole prompt's
// keys and values, before the session's own method cuts it. Throws what Session::prefill throws.
void prefill_observed(Session& session, std::span<const Token> tokens, const LayerObserver& observer,
                      const PrefillOptions& options = {});

// Prefills several sessions at once, as Engine::prefill. The observer sees each layer once, before any of the sessions
// cuts it. Throws what Engine::prefill throws.
void prefill_observed(Engine& engine, std::span<Session* const> sessions, std::span<const Token> tokens,
                      const LayerObserver& observer, const PrefillOptions& options = {});

// Opens a session that saves more queries than its own method needs: the last needs.window_rows, and the moments if
// needs.query_moments is set. Throws Error(kInvalidArgument) if both want moments that leave out different numbers of
// tokens.
Session open_observed(Engine& engine, const SessionOptions& options, const EvidenceNeeds& needs);

// Calls the observer with every layer as it is stored, with the queries that the session has saved. observer.needs is
// not read: open_observed() decides what is saved.
void observe_stored(Session& session, const LayerObserver& observer);

}  // namespace winnow
