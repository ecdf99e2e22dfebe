#include "engine/prefill/append_prefill.h"

#include <algorithm>

namespace winnow {

AppendPrefill::AppendPrefill(std::shared_ptr<Engine> the_engine, Session::Impl& session,
                             std::span<const Token> the_tokens, const PrefillOptions& the_callbacks,
                             std::optional<std::int64_t> cut_total, std::size_t n_chunk)
    : Impl(std::move(the_engine), {&session}, the_tokens, the_callbacks),
      session_(session),
      cut_total_(cut_total),
      n_chunk_(n_chunk),
      n_before_(session.n_tokens()),
      before_(session.evidence),
      sink_(session.cache) {
  session.check_tokens(tokens);
}

AppendPrefill::~AppendPrefill() = default;

std::span<const Token> AppendPrefill::chunk() const {
  const auto fed = static_cast<std::size_t>(session_.n_tokens() - n_before_);
  return std::span(tokens).subspan(fed, std::min(n_chunk_, tokens.size() - fed));
}

void AppendPrefill::begin_pass() {
  const auto n = static_cast<std::int32_t>(chunk().size());
  if (n_before_ > 0) cache_before_ = session_.cache.fork_to_undo();
  session_.cache.extend_all(n, session_.n_tokens());
  if (cut_total_) {
    session_.evidence.begin_rows({.first_position = session_.n_tokens(), .n_rows = n, .of_all_layers = true});
  }
  ForwardPlan plan = forward_plan(chunk(), session_.n_tokens());
  plan.n_together = engine_impl().pipeline.layers_at_once(engine_impl().layers.size());  // the cache holds all anyway
  begin_forward(plan, sink_, session_.recurrent, {&session_.evidence});
}

void AppendPrefill::end_layer(int /*layer*/) {}  // rows are stored where they stay

bool AppendPrefill::end_pass() {
  std::vector<float> logits = read_output();
  session_.note_sizes(pass->hidden_bytes(), 0);
  work_before += pass->work_done();
  pass.reset();
  const std::span<const Token> fed = chunk();
  session_.tokens.reserve(session_.tokens.size() + fed.size());  // from here on the turn counts as fed
  session_.recurrent.commit();
  session_.logits = std::move(logits);
  session_.tokens.insert(session_.tokens.end(), fed.begin(), fed.end());
  session_.statistics.prompt_tokens += static_cast<std::int64_t>(fed.size());
  is_fed_ = n_before_ > 0;  // even if the cut fails
  cache_before_.reset();    // before the cut, which would copy what is shared
  try {
    if (cut_total_) session_.cut_to_total(*cut_total_);
  } catch (...) {
    session_.settle_cache();
    throw;
  }
  session_.settle_cache();  // after the cut: what it drops need not be coded
  session_.evidence.end_rows();
  return !chunk().empty();
}

bool AppendPrefill::undo() {
  pass.reset();
  if (n_before_ == 0) {
    session_.reset();
    return false;
  }
  session_.evidence.end_rows();
  if (is_fed_) return true;
  session_.cache.undo(std::move(cache_before_), n_before_);
  session_.recurrent.discard();
  session_.evidence = std::move(before_);
  return false;
}

}  // namespace winnow
