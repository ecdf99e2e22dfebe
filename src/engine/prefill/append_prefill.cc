#include <algorithm>
#include <limits>

#include "engine/prefill/prefill_impl.h"

namespace winnow {

AppendPrefill::AppendPrefill(std::shared_ptr<Engine> the_engine, Session::Impl& session,
                             std::span<const Token> the_tokens, const PrefillOptions& the_callbacks,
                             std::optional<std::int64_t> cut_total)
    : Impl(std::move(the_engine), {&session}, the_tokens, the_callbacks),
      session_(session),
      cut_total_(cut_total),
      before_(session.evidence),
      sink_(session.cache) {
  session.check_tokens(tokens);
  const auto n = static_cast<std::int32_t>(tokens.size());
  try {
    session.cache.extend_all(n, session.n_tokens());
    if (cut_total) session.evidence.begin_rows(session.n_tokens(), n, true);
    pass_.emplace(engine_impl(), sink_, tokens, session.n_tokens(), std::vector{&session.evidence});
  } catch (...) {
    undo();
    throw;
  }
  work_total = pass_->work_total();
}

AppendPrefill::~AppendPrefill() = default;

bool AppendPrefill::step() {
  if (!is_through) {
    is_through = !pass_->step(nullptr);
    return true;
  }
  std::vector<float> logits = pass_->read_logits(callbacks.on_logits);
  session_.note_sizes(pass_->hidden_bytes(), 0);
  pass_.reset();
  session_.logits = std::move(logits);
  session_.tokens.insert(session_.tokens.end(), tokens.begin(), tokens.end());
  session_.statistics.prompt_tokens += static_cast<std::int64_t>(tokens.size());
  session_.cache.slide();
  is_done = true;
  if (cut_total_) session_.cut_to_total(*cut_total_);
  session_.evidence.end_rows();
  return false;
}

void AppendPrefill::undo() {
  pass_.reset();
  session_.evidence.end_rows();
  if (is_done) return;  // the cut that followed failed: the tokens are fed, and all of them kept
  session_.cache.truncate(session_.n_tokens());
  session_.evidence = std::move(before_);
}

ChunkedPrefill::ChunkedPrefill(std::shared_ptr<Engine> the_engine, Session::Impl& session,
                               std::span<const Token> the_tokens, const PrefillOptions& the_callbacks)
    : Impl(std::move(the_engine), {&session}, the_tokens, the_callbacks), session_(session) {
  session.check_tokens(tokens);
  total_ = session.total_entries(static_cast<std::int32_t>(tokens.size()));
  work_total = static_cast<std::int64_t>(tokens.size()) * session.cache.shape().n_layer();
}

ChunkedPrefill::~ChunkedPrefill() = default;

void ChunkedPrefill::begin_chunk() {
  chunk_ = std::min(tokens.size() - fed_, static_cast<std::size_t>(session_.options.prefill_chunk));
  PrefillOptions chunk_callbacks;
  chunk_callbacks.on_logits = callbacks.on_logits;
  append_ = std::make_unique<AppendPrefill>(engine, session_, std::span(tokens).subspan(fed_, chunk_), chunk_callbacks,
                                            total_);
}

bool ChunkedPrefill::step() {
  if (!append_) begin_chunk();
  if (append_->step()) return true;
  append_.reset();
  fed_ += chunk_;
  return fed_ < tokens.size();
}

std::int64_t ChunkedPrefill::work_done() const {
  return static_cast<std::int64_t>(fed_) * session_.cache.shape().n_layer() + (append_ ? append_->work_done() : 0);
}

void ChunkedPrefill::undo() {
  append_.reset();
  session_.cache.clear();
  session_.tokens.clear();
  session_.logits.clear();
  session_.evidence = QueryEvidence(session_.evidence.needs(), session_.model().spec);
  session_.statistics.prompt_tokens = 0;
  engine_impl().pool->trim();
}

}  // namespace winnow
