#include "engine/prefill/first_cut.h"

#include <algorithm>

#include "engine/prefill/loss_search.h"
#include "engine/session_options.h"

namespace winnow {

FirstCut first_cut(const SessionOptions& options, const CacheShape& shape, std::int32_t n) {
  const std::int64_t whole = std::int64_t{n} * shape.n_cut_heads();
  if (!options.eviction.evicts()) return {.total = whole};
  FirstCut cut{.total = budget_entries(options.budget->most(), shape, n)};
  if (options.budget->unit != Budget::Unit::kLoss) return cut;
  cut.n_held_out = held_out_tokens(n);
  // The largest cut may keep everything, in fewer bits. It is narrowed all the same: smaller cuts are found from it.
  cut.total = cut.n_held_out > 0 ? std::min(cut.total, whole - 1) : whole;
  return cut;
}

}  // namespace winnow
