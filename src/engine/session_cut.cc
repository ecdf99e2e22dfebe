// Cuts of what a session has stored: after a turn or a chunk, and while decoding.
#include <chrono>
#include <limits>

#include "engine/engine_impl.h"
#include "engine/layer_views.h"
#include "winnow/error.h"

namespace winnow {

void Session::Impl::run_cut(const CutShape& cut_shape, int max_window_rows) {
  const auto start = std::chrono::steady_clock::now();
  const CacheShape& shape = cache.shape();
  Cut cut(options.eviction, cut_shape);
  if (cut.keeps_everything()) return;
  const ParallelFor parallel_for = engine_impl().parallel_for();
  std::vector<kernels::HeadEntries> heads;
  std::vector<float> w_o;
  for (int l = 0; l < shape.n_layer; ++l) {
    const LayerView view = stored_layer_view(*this, l, heads, w_o, max_window_rows);
    keep_entries(cache, cut.add_layer(view, parallel_for), parallel_for);
  }
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  statistics.evict_s += elapsed.count();
}

void Session::Impl::cut_to_total(std::int64_t new_total) {
  const CacheShape& shape = cache.shape();
  total = new_total;
  run_cut({.n_layer = shape.n_layer,
           .n_kv_head = shape.n_kv_head,
           .n_tokens = n_tokens(),
           .total = total,
           .stored = cache.n_entries()},
          std::numeric_limits<int>::max());
  note_head_budgets();
  engine_impl().pool->trim();
  decoded_since_cut = 0;
}

void Session::Impl::check_cut(std::int32_t n_more, std::int64_t new_total) const {
  const CacheShape& shape = cache.shape();
  const Cut cut(options.eviction,
                {.n_layer = shape.n_layer,
                 .n_kv_head = shape.n_kv_head,
                 .n_tokens = n_tokens() + n_more,
                 .total = new_total,
                 .stored = cache.n_entries() + std::int64_t{n_more} * shape.n_layer * shape.n_kv_head});
  if (!cut.keeps_everything() && evidence.needs().reconstruction_pass) {
    throw Error(ErrorCode::kUnsupported, "the method '" + options.eviction.method +
                                             "' scores by a pass that repeats the whole prompt and cannot cut again: "
                                             "feed later turns with append");
  }
}

std::int64_t Session::Impl::decode_total(std::int32_t n) const {
  const CacheShape& shape = cache.shape();
  const std::int64_t n_heads = std::int64_t{shape.n_layer} * shape.n_kv_head;
  const bool is_fraction = options.budget->unit == Budget::Unit::kFraction;
  if (is_fraction && total == 0) return n * n_heads;  // there was no prompt
  return is_fraction ? total : options.budget->total_entries(n, n_heads, shape.entry_bytes());
}

void Session::Impl::check_cut_after_decode() const {
  if (!options.eviction.evicts() || options.decode_cut == SessionOptions::DecodeCut::kKeep) return;
  const bool is_own = options.decode_cut == SessionOptions::DecodeCut::kOwn && !head_budgets.empty();
  if (!is_own && decoded_since_cut + 1 >= options.cut_every) check_cut(1, decode_total(n_tokens() + 1));
}

void Session::Impl::note_head_budgets() {
  head_budgets.clear();
  if (cache.n_entries() < std::int64_t{n_tokens()} * cache.shape().n_layer * cache.shape().n_kv_head) {
    for (int l = 0; l < cache.shape().n_layer; ++l) {
      for (int h = 0; h < cache.shape().n_kv_head; ++h) head_budgets.push_back(cache.n_entries(l, h));
    }
  }
}

void Session::Impl::cut_after_decode() {
  if (!options.eviction.evicts() || options.decode_cut == SessionOptions::DecodeCut::kKeep) return;
  const CacheShape& shape = cache.shape();
  CutShape cut{.n_layer = shape.n_layer,
               .n_kv_head = shape.n_kv_head,
               .n_tokens = n_tokens(),
               .total = decode_total(n_tokens()),
               .stored = cache.n_entries()};
  if (options.decode_cut == SessionOptions::DecodeCut::kOwn && !head_budgets.empty()) {
    cut.fixed_budget = head_budgets;
    run_cut(cut, 1);
  } else if (++decoded_since_cut >= options.cut_every) {
    run_cut(cut, std::numeric_limits<int>::max());
    decoded_since_cut = 0;  // one that failed is due again after the next token
  }
}

}  // namespace winnow
