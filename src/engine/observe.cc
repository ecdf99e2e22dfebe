#include "winnow/observe.h"

#include <mutex>

#include "engine/evidence/layer_views.h"
#include "engine/prefill/prefill_impl.h"
#include "winnow/error.h"

namespace winnow {

void prefill_observed(Engine& engine, std::span<Session* const> sessions, std::span<const Token> tokens,
                      const LayerObserver& observer, const PrefillOptions& options) {
  engine.impl().pipeline.check_whole("an observation");
  for (const Session* session : sessions) {
    if (session->n_tokens() == 0 && session->options().prefill_chunk == 0) continue;
    throw Error(ErrorCode::kInvalidArgument, "only an empty session that prefills layer by layer can be observed");
  }
  std::unique_ptr<Prefill::Impl> impl;
  {
    const std::lock_guard lock(engine.impl().mutex);
    impl = start_prefill(engine.shared_from_this(), sessions, tokens, options, &observer);
  }
  Prefill prefill(std::move(impl));
  while (prefill.step()) {
  }
}

void prefill_observed(Session& session, std::span<const Token> tokens, const LayerObserver& observer,
                      const PrefillOptions& options) {
  Session* self = &session;
  prefill_observed(*session.impl().engine, std::span(&self, 1), tokens, observer, options);
}

Session open_observed(Engine& engine, const SessionOptions& options, const EvidenceNeeds& needs) {
  Session session = engine.open(options);
  const EvidenceNeeds own = session.impl().evidence.needs();
  if (own.query_moments && needs.query_moments && own.moments_skip != needs.moments_skip) {
    throw Error(ErrorCode::kInvalidArgument, "the session's method leaves " + std::to_string(own.moments_skip) +
                                                 " tokens out of the queries' moments, and the observer " +
                                                 std::to_string(needs.moments_skip) + ": ask for the same number");
  }
  EvidenceNeeds both = own;
  both |= needs;
  both.moments_skip = own.query_moments ? own.moments_skip : needs.moments_skip;
  session.impl().evidence = QueryEvidence(both, session.impl().model().spec, engine.impl().layers);
  return session;
}

void observe_stored(Session& session, const LayerObserver& observer) {
  Session::Impl& impl = session.impl();
  const std::lock_guard lock(impl.engine_impl().mutex);
  impl.check_idle();
  impl.engine_impl().pipeline.check_whole("an observation");
  const ParallelFor parallel_for = impl.engine_impl().parallel_for();
  for (int l = 0; l < impl.cache.shape().n_layer(); ++l) {
    if (!impl.cache.shape().layer(l).is_evictable()) continue;
    LayerViews layer = stored_layer(impl, l);
    observer.on_layer(layer.with_rows(impl.evidence, impl.evidence.needs()), parallel_for);
  }
}

}  // namespace winnow
