#include "eviction/cut/fitting_window.h"

#include <algorithm>
#include <numeric>

#include "eviction/options/registry.h"

namespace winnow {

EvictionOptions with_fitting_window(EvictionOptions options, const CutShape& shape) {
  if (!options.evicts() || options.reads_profile()) return options;
  const std::int64_t n_heads = shape.n_heads();
  const std::int64_t stored = shape.stored > 0 ? shape.stored : shape.n_tokens * n_heads;
  const std::int64_t total = shape.fixed_budget.empty() ? shape.total
                                                        : std::accumulate(shape.fixed_budget.begin(),
                                                                          shape.fixed_budget.end(), std::int64_t{0});
  const std::int64_t n_protected = std::min<std::int64_t>(shape.n_tokens, std::int64_t{options.window} + options.sinks);
  if (stored <= total || n_protected * n_heads <= total) return options;
  const std::int64_t left = total / n_heads - options.sinks;
  options.window = static_cast<int>(std::max<std::int64_t>(left / 2, least_window(options)));
  return options;
}

}  // namespace winnow
