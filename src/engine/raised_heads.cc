#include "engine/raised_heads.h"

#include <algorithm>
#include <vector>

#include "engine/evidence/code_cost.h"
#include "engine/evidence/layer_views.h"

namespace winnow {
namespace {

// Returns the sum of the ranks' numbers.
double sum_over_ranks(const Pipeline& pipeline, double own) {
  double sum = 0;
  for (const std::vector<std::byte>& of_rank : pipeline.gather(std::as_bytes(std::span(&own, 1)))) {
    sum += numbers_in<double>(of_rank)[0];
  }
  return sum;
}

// Calls body(layer, head, entries) with the number of entries of every own head of the layers that are cut, as it is
// after `cuts`.
template <class Body>
void for_each_head(const RaggedCache& cache, std::span<const LayerCut> cuts, const Body& body) {
  for (int l = 0; l < cache.shape().n_layer(); ++l) {
    if (!cache.shape().layer(l).is_evictable()) continue;
    const auto cut = std::ranges::find(cuts, l, &LayerCut::layer);
    for (int h = 0; h < cache.shape().layer(l).n_kv_head; ++h) {
      const bool is_cut = cut != cuts.end() && !cut->kept.empty();
      body(l, h, is_cut ? std::ssize(cut->kept[static_cast<std::size_t>(h)]) : std::ptrdiff_t{cache.n_entries(l, h)});
    }
  }
}

}  // namespace

bool raises_heads(const Session::Impl& session) {
  const std::optional<Budget>& budget = session.options.budget;
  return session.shape.later && !(budget && budget->unit == Budget::Unit::kLoss);
}

void choose_raised_heads(RaggedCache& cache, const LayerView& view,
                         std::span<const std::shared_ptr<const kernels::CodeFeedback>> feedback,
                         const ParallelFor& parallel_for) {
  const CacheShape& shape = cache.shape();
  if (!shape.later || view.n_reference_rows == 0) return;
  const std::vector<CodeCost> costs = code_costs(view, shape.key_type, shape.value_type, feedback, parallel_for);
  for (std::size_t h = 0; h < costs.size(); ++h) {
    cache.raise_bits(view.layer, static_cast<int>(h), costs[h].is_too_much());
  }
}

bool pays_for_raised_heads(const Session::Impl& session) {
  const std::optional<Budget>& budget = session.options.budget;
  return session.shape.later && budget &&
         (budget->unit == Budget::Unit::kBytes || budget->unit == Budget::Unit::kByteFraction);
}

void pay_for_raised_heads(Session::Impl& session, Cut& cut, std::int64_t total, const ParallelFor& parallel_for) {
  const RaggedCache& cache = session.cache;
  const CacheShape& shape = cache.shape();
  const Pipeline& pipeline = session.engine_impl().pipeline;
  const double high_fraction = shape.high ? shape.high->fraction : 0;
  // These return the bytes of a head's entry in the cache's types, and in the types that the head has.
  const auto planned = [&](int layer) {
    const auto coded = static_cast<double>(shape.entry_bytes(layer));
    return coded + high_fraction * (static_cast<double>(shape.high_entry_bytes(layer)) - coded);
  };
  const auto stored = [&](int layer, int head) {
    if (!cache.is_raised(layer, head)) return planned(layer);
    return static_cast<double>(
        kernels::entry_bytes(shape.layer(layer), shape.later->key_type, shape.later->value_type));
  };
  double n_raised = 0, bytes_planned = 0;
  for_each_head(cache, {}, [&](int layer, int head, std::ptrdiff_t n) {
    n_raised += cache.is_raised(layer, head) ? 1 : 0;
    bytes_planned += static_cast<double>(n) * planned(layer);
  });
  if (sum_over_ranks(pipeline, n_raised) == 0) return;
  bytes_planned = sum_over_ranks(pipeline, bytes_planned);

  const auto fits = [&](std::int64_t entries) {
    double bytes = 0;
    for_each_head(
        cache, cut.narrowed(entries, high_fraction, parallel_for),
        [&](int layer, int head, std::ptrdiff_t n) { bytes += static_cast<double>(n) * stored(layer, head); });
    return sum_over_ranks(pipeline, bytes) <= bytes_planned;
  };
  std::int64_t least = std::min(cut.n_protected(), total);  // the cut that is made if nothing fits
  for (std::int64_t most = total - 1; least < most;) {
    const std::int64_t middle = least + (most - least + 1) / 2;
    if (fits(middle)) {
      least = middle;
    } else {
      most = middle - 1;
    }
  }
  keep_entries(session, cut.narrowed(least, high_fraction, parallel_for), parallel_for);
}

}  // namespace winnow
