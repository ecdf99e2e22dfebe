#include "eviction/cut/high_entries.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

#include "eviction/cut/shares.h"

namespace winnow {

std::vector<std::int64_t> high_counts(const HighPrecision& high, double total, std::span<const double> weights,
                                      std::span<const std::int64_t> kept, bool round_up) {
  std::vector<std::int64_t> caps;
  for (const std::int64_t n : kept) caps.push_back(std::max<std::int64_t>(n - high.n_plain, 0) / high.unit);
  const auto wanted = static_cast<std::int64_t>(high.fraction * total / high.unit + kShareTolerance);
  const std::int64_t n_units = std::min(wanted, std::accumulate(caps.begin(), caps.end(), std::int64_t{0}));
  const std::vector<double> shares = water_fill(weights, caps, n_units);
  std::vector<std::int64_t> counts(caps.size());
  if (round_up) {
    for (std::size_t h = 0; h < caps.size(); ++h) counts[h] = std::min(caps[h], ceiling(shares[h]));
  } else {
    counts = round_shares(shares, n_units);
  }
  for (std::int64_t& n : counts) n *= high.unit;
  return counts;
}

std::vector<std::int32_t> high_entries(const HighPrecision& high, const KeptHead& head, std::int64_t n) {
  if (n == 0) return {};
  const std::int64_t n_kept = std::ssize(head.kept);
  std::vector<bool> is_high(head.kept.size());
  const auto take = [&](std::int64_t i) {
    if (n == 0 || i < high.n_plain) return;
    is_high[static_cast<std::size_t>(i)] = true;
    --n;
  };
  for (std::int64_t i = n_kept; i-- > n_kept - head.n_window;) take(i);
  if (n > 0) {
    constexpr std::int32_t kNone = -1;
    std::vector<std::int32_t> place(head.order.size(), kNone);  // in `kept`, by candidate
    std::int32_t next = head.n_sinks;
    for (const std::int32_t candidate : head.chosen) place[static_cast<std::size_t>(candidate)] = next++;
    for (auto best = head.order.begin(); n > 0 && best != head.order.end(); ++best) {
      const std::int32_t i = place[static_cast<std::size_t>(*best)];
      if (i != kNone) take(i);
    }
  }
  for (std::int64_t i = 0; i < head.n_sinks; ++i) take(i);
  std::vector<std::int32_t> entries;
  for (std::size_t i = 0; i < is_high.size(); ++i) {
    if (is_high[i]) entries.push_back(head.kept[i]);
  }
  return entries;
}

}  // namespace winnow
