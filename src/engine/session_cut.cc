// Cuts of the entries that a session has stored: after a turn or a chunk, and while decoding.
#include <limits>
#include <new>
#include <optional>

#include "base/stopwatch.h"
#include "engine/engine_impl.h"
#include "engine/evidence/key_feedback.h"
#include "engine/evidence/layer_views.h"
#include "engine/evidence/reference_attention.h"
#include "engine/raised_heads.h"
#include "engine/session_options.h"
#include "eviction/cut/fitting_window.h"
#include "winnow/error.h"

namespace winnow {

void Session::Impl::run_cut(const CutShape& shape_of_cut, int max_window_rows) {
  const Stopwatch watch;
  const Pipeline& pipeline = engine_impl().pipeline;
  Cut cut(with_fitting_window(options.eviction, shape_of_cut), shape_of_cut, pipeline.summary_sink());
  if (cut.keeps_everything()) return;
  const bool has_feedback = feeds_back(options) && evidence.n_reference_rows() > 0;
  const bool pays = has_feedback && shape_of_cut.fixed_budget.empty() && pays_for_raised_heads(*this);
  if (pays) cut.allow_narrowing();
  const ParallelFor parallel_for = engine_impl().parallel_for();
  const auto feedback_bytes = engine_impl().pool->reserve(has_feedback ? key_feedback_bytes(cache.shape()) : 0);
  std::optional<ReferenceAttention> reference;  // a step of decoding has no reference rows
  if (options.eviction.fit == Fit::kValues && evidence.n_reference_rows() > 0) {
    reference.emplace(model().spec, engine_impl().layers, evidence.n_reference_rows(), engine_impl().pool);
    cache.hold_values();
  }
  try {
    for (int l = 0; l < shape.n_layer(); ++l) {
      if (!shape.layer(l).is_evictable()) continue;
      if (!pipeline.holds(l)) {
        keep_entries(*this, cut.add_remote_layer(l, pipeline.receive_layer(l), parallel_for), parallel_for);
        continue;
      }
      LayerViews layer = stored_layer(*this, l);
      LayerView view = layer.of(evidence, evidence.needs(), max_window_rows);
      if (has_feedback) {
        const KeyFeedback feedback = key_feedback(view, parallel_for);
        set_feedback(cache, l, feedback);
        if (raises_heads(*this)) choose_raised_heads(cache, view, feedback, parallel_for);
      }
      if (reference) reference->add_layer(view, parallel_for);
      keep_entries(*this, cut.add_layer(view, parallel_for), parallel_for);
    }
    if (pays) pay_for_raised_heads(*this, cut, shape_of_cut.total, parallel_for);
    if (reference) reference->refit(cache, parallel_for);
  } catch (...) {
    cache.code_values(parallel_for);  // values that were held for a fit that does not come
    cache.drop_feedback();
    throw;
  }
  cache.drop_feedback();
  gather_cut_entries();
  statistics.evict_s += watch.seconds();
}

std::int64_t Session::Impl::n_cut_entries() const {
  const std::int64_t n_elsewhere = shape.n_cut_heads() - cache.shape().n_cut_heads();
  return cache.n_cut_entries() + remote_entries.count(n_elsewhere, n_tokens());
}

void Session::Impl::gather_cut_entries() { remote_entries.gather(engine_impl().pipeline, cache, n_tokens()); }

void Session::Impl::settle_cache() {
  if (!shape.has_codes()) return cache.settle();
  // The turn is fed by now, so nothing here may fail for memory. Pages that cannot be coded for lack of memory wait for
  // the next time, and heads that cannot be shared out to threads are settled one after the other.
  try {
    engine_impl().parallel_for()(cache.shape().n_heads(), [this](int i) {
      int layer = 0;
      for (; i >= cache.shape().layer(layer).n_kv_head; ++layer) i -= cache.shape().layer(layer).n_kv_head;
      cache.settle(layer, i);
    });
  } catch (const std::bad_alloc&) {
    cache.settle();
  } catch (const Error&) {
    // A device that has failed fails the next call, too, which says so. Pages stay as they are.
    if (engine_impl().device == nullptr) throw;
  }
}

void Session::Impl::cut_to_total(std::int64_t new_total) {
  total = new_total;
  CutShape cut = cut_shape(shape, n_tokens(), total);
  cut.stored = n_cut_entries();
  run_cut(cut, std::numeric_limits<int>::max());
  note_head_budgets();
  engine_impl().pool->trim();
  decoded_since_cut = 0;
}

void Session::Impl::check_cut(std::int32_t n_more, std::int64_t new_total) const {
  CutShape to_cut = cut_shape(shape, n_tokens() + n_more, new_total);
  to_cut.stored = n_cut_entries() + n_more * to_cut.n_heads();
  const Cut cut(with_fitting_window(options.eviction, to_cut), to_cut);
  if (!cut.keeps_everything() && evidence.needs().reconstruction_only) {
    throw Error(ErrorCode::kUnsupported, "the method '" + options.eviction.method +
                                             "' scores by a pass that repeats the whole prompt and cannot cut again: "
                                             "feed later turns with append");
  }
}

std::int64_t Session::Impl::decode_total(std::int32_t n) const {
  const std::int64_t n_heads = shape.n_cut_heads();
  const bool is_relative = options.budget->is_relative();  // a loss comes to a part of the prompt
  if (is_relative && total == 0) return n * n_heads;       // there was no prompt
  return is_relative ? total : options.budget->total_entries(n, n_heads, shape.cut_entry_bytes(n));
}

void Session::Impl::check_cut_after_decode() const {
  if (!options.eviction.evicts() || options.decode_cut == SessionOptions::DecodeCut::kKeep) return;
  const bool is_own = options.decode_cut == SessionOptions::DecodeCut::kOwn && !head_budgets.empty();
  if (!is_own && decoded_since_cut + 1 >= options.cut_every) check_cut(1, decode_total(n_tokens() + 1));
}

void Session::Impl::note_head_budgets() {
  head_budgets.clear();
  if (n_cut_entries() == std::int64_t{n_tokens()} * shape.n_cut_heads()) return;
  for (int l = 0; l < shape.n_layer(); ++l) {
    if (!shape.layer(l).is_evictable()) continue;
    const bool is_here = engine_impl().pipeline.holds(l);
    for (int h = 0; h < shape.layer(l).n_kv_head; ++h) {
      head_budgets.push_back(is_here ? cache.n_entries(l, h) : remote_entries.of_head(head_budgets.size()));
    }
  }
}

void Session::Impl::cut_after_decode() {
  if (!options.eviction.evicts() || options.decode_cut == SessionOptions::DecodeCut::kKeep) return;
  CutShape cut = cut_shape(shape, n_tokens(), decode_total(n_tokens()));
  cut.stored = n_cut_entries();
  if (options.decode_cut == SessionOptions::DecodeCut::kOwn && !head_budgets.empty()) {
    cut.fixed_budget = head_budgets;
    run_cut(cut, 1);
  } else if (++decoded_since_cut >= options.cut_every) {
    run_cut(cut, std::numeric_limits<int>::max());
    decoded_since_cut = 0;  // one that failed is due again after the next token
  }
}

}  // namespace winnow
