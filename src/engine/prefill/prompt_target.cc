#include "engine/prefill/prompt_target.h"

#include <algorithm>
#include <numeric>

#include "base/stopwatch.h"
#include "engine/evidence/code_cost.h"
#include "engine/prefill/first_cut.h"
#include "engine/raised_heads.h"
#include "engine/session_options.h"
#include "eviction/cut/fitting_window.h"

namespace winnow {

PromptTarget::PromptTarget(Session::Impl& session, std::span<const Token> tokens) : session_(&session) {
  session.check_tokens(tokens);
  if (!session.options.eviction.evicts()) return;
  const auto n = static_cast<std::int32_t>(tokens.size());
  const FirstCut first = first_cut(session.options, session.shape, n);
  total_ = first.total;
  has_loss_ = session.options.budget->unit == Budget::Unit::kLoss;
  if (has_loss_ && first.n_held_out == 0) {
    promise_ = {.asked = session.options.budget->amount, .taken = {.unit = Budget::Unit::kByteFraction, .amount = 1}};
    return;
  }
  const CutShape shape = cut_shape(session.shape, n, total_);
  cut_ = std::make_unique<Cut>(with_fitting_window(session.options.eviction, shape), shape,
                               session.engine_impl().pipeline.summary_sink());
  if (cut_->keeps_everything()) cut_.reset();
  if (promises() || (has_cut() && pays_for_raised_heads(session))) cut_->allow_narrowing();
}

void PromptTarget::append(const LayerViews& layer, std::span<const std::int32_t> entries,
                          std::span<const std::int32_t> high) {
  const std::span<const kernels::HeadEntries> heads = layer.heads();
  session_->engine_impl().parallel_for()(static_cast<int>(heads.size()), [&](int h) {
    session_->cache.append_from(layer.layer(), h, heads[static_cast<std::size_t>(h)], entries, high);
  });
}

void PromptTarget::keep_last(const LayerViews& layer, std::int32_t n) {
  std::vector<std::int32_t> last(static_cast<std::size_t>(n));
  std::iota(last.begin(), last.end(), layer.n_tokens() - n);
  append(layer, last, {});
}

void PromptTarget::measure_codes(const LayerView& view) {
  if (!winnow::measures_codes(session_->options) || view.n_reference_rows == 0) return;
  const CacheShape& shape = session_->cache.shape();
  std::optional<CodeLoss>& loss = session_->statistics.code_loss;
  if (!loss) loss.emplace();
  add_code_costs(*loss, view.layer,
                 code_costs(view, shape.key_type, shape.value_type, {}, session_->engine_impl().parallel_for()));
}

void PromptTarget::keep_all(const LayerViews& layer) {
  if (!promise_ || !session_->cache.shape().high) return keep_last(layer, layer.n_tokens());
  // The prompt was too short to measure a loss: all entries are stored in more bits, except those that do not fill a
  // page.
  std::vector<std::int32_t> all(static_cast<std::size_t>(layer.n_tokens()));
  std::iota(all.begin(), all.end(), 0);
  const std::int32_t n_high = std::max(layer.n_tokens() - kPlainEntries, 0) / kPageEntries * kPageEntries;
  append(layer, all,
         std::span(all).subspan(std::min<std::size_t>(kPlainEntries, all.size()), static_cast<std::size_t>(n_high)));
}

void PromptTarget::meet_loss_target(const HeldOutText& text) {
  const Stopwatch watch;
  const ParallelFor parallel_for = session_->engine_impl().parallel_for();
  const LossSearch search(*session_, *cut_, text);
  promise_ = search.find();
  total_ = search.total(promise_->taken);
  keep_entries(*session_, cut_->narrowed(total_, search.high_fraction(promise_->taken), parallel_for), parallel_for);
  add_eviction_time(watch.seconds());
}

void PromptTarget::pay_for_raised_heads() {
  if (!has_cut() || !winnow::pays_for_raised_heads(*session_)) return;
  const Stopwatch watch;
  winnow::pay_for_raised_heads(*session_, *cut_, total_, session_->engine_impl().parallel_for());
  add_eviction_time(watch.seconds());
}

void PromptTarget::cut(const LayerViews& layer, LayerScoring& scoring) {
  scoring.costs().begin_user();
  const Stopwatch watch;
  std::vector<LayerCut> due = cut_->add_layer(scoring);
  LayerCut own{.layer = layer.layer(), .kept = {}, .high = {}, .scores = {}};  // this layer's cut, if it is due
  if (!due.empty() && due.back().layer == layer.layer()) {
    own = std::move(due.back());
    due.pop_back();
  }
  // Layers that are stored already give pages back before the new layer takes any.
  keep_entries(*session_, due, scoring.parallel_for());
  scoring.parallel_for()(static_cast<int>(own.kept.size()), [&](int h) {
    const auto at = static_cast<std::size_t>(h);
    auto scores = session_->scores.make(own.scores.empty() ? std::span<const float>{} : own.scores[at]);
    session_->cache.append_from(layer.layer(), h, layer.heads()[at], own.kept[at], own.high[at]);
    session_->scores.set(layer.layer(), h, std::move(scores));
  });
  const double elapsed = watch.seconds();
  // Costs shared by targets are paid by the first one; every target is charged as if it were alone.
  add_eviction_time(elapsed + scoring.costs().reused_seconds());
  if (session_->evidence.needs().output_projection) add_eviction_time(layer.output_projection_s());
}

void PromptTarget::apply_remote_cut(int layer, std::span<const std::byte> summary) {
  const Stopwatch watch;
  const ParallelFor parallel_for = session_->engine_impl().parallel_for();
  keep_entries(*session_, cut_->add_remote_layer(layer, summary, parallel_for), parallel_for);
  add_eviction_time(watch.seconds());
}

void PromptTarget::finish(std::span<const Token> tokens, std::span<const float> logits, double suffix_s) {
  session_->tokens.assign(tokens.begin(), tokens.end());
  session_->logits.assign(logits.begin(), logits.end());
  session_->total = total_;
  if (has_cut()) session_->gather_cut_entries();
  if (promise_) session_->take_promise(*promise_);
  session_->note_head_budgets();
  session_->statistics.prompt_tokens += static_cast<std::int64_t>(tokens.size());
  session_->statistics.evict_s += evict_s_;
  if (has_cut() && session_->evidence.needs().repeats_prompt()) session_->statistics.evict_s += suffix_s;
}

}  // namespace winnow
