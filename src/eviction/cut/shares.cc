#include "eviction/cut/shares.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace winnow {
namespace {

// Finds the water level over the items in `who`, all of positive weight, and writes their x. Exact at the breakpoints:
// between two of them the sum is linear in lambda.
void fill(std::span<const double> weights, std::span<const std::int64_t> floors, std::span<const std::int64_t> caps,
          const std::vector<std::size_t>& who, double total, std::vector<double>& x) {
  struct Breakpoint {
    double lambda;
    std::size_t item;
    bool is_cap;  // false: the item leaves its floor here
  };
  std::vector<Breakpoint> breakpoints;
  double clamped = 0;  // sum of the items at floor or cap
  for (const std::size_t i : who) {
    breakpoints.push_back({static_cast<double>(floors[i]) / weights[i], i, false});
    breakpoints.push_back({static_cast<double>(caps[i]) / weights[i], i, true});
    clamped += static_cast<double>(floors[i]);
  }
  std::sort(breakpoints.begin(), breakpoints.end(), [](const Breakpoint& a, const Breakpoint& b) {
    if (a.lambda != b.lambda) return a.lambda < b.lambda;
    return a.item != b.item ? a.item < b.item : a.is_cap < b.is_cap;
  });
  double lambda = 0;
  std::vector<std::size_t> active;
  std::vector<char> is_active(weights.size(), 0);
  double slope = 0;  // sum of the active weights
  std::size_t n_active = 0;
  for (const Breakpoint& point : breakpoints) {
    if (n_active > 0 && clamped + slope * point.lambda >= total) {
      lambda = (total - clamped) / slope;
      break;
    }
    lambda = point.lambda;
    if (point.is_cap) {
      clamped += static_cast<double>(caps[point.item]);
      is_active[point.item] = 0;
      --n_active;
    } else {
      clamped -= static_cast<double>(floors[point.item]);
      is_active[point.item] = 1;
      ++n_active;
    }
    // The slope is summed anew: adding and subtracting weights of very different size would accumulate rounding errors.
    slope = 0;
    for (const std::size_t i : who) slope += is_active[i] != 0 ? weights[i] : 0.0;
  }
  for (const std::size_t i : who) {
    x[i] = std::min(static_cast<double>(caps[i]), std::max(static_cast<double>(floors[i]), lambda * weights[i]));
  }
}

}  // namespace

std::vector<double> water_fill(std::span<const double> weights, std::span<const std::int64_t> floors,
                               std::span<const std::int64_t> caps, std::int64_t total) {
  std::vector<double> x(weights.size());
  std::vector<std::size_t> weighted, weightless;
  std::int64_t weightless_floors = 0, weighted_caps = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    x[i] = static_cast<double>(floors[i]);
    if (weights[i] > 0) {
      weighted.push_back(i);
      weighted_caps += caps[i];
    } else {
      weightless.push_back(i);
      weightless_floors += floors[i];
    }
  }
  const std::int64_t for_weighted = std::min(total - weightless_floors, weighted_caps);
  if (!weighted.empty()) fill(weights, floors, caps, weighted, static_cast<double>(for_weighted), x);
  if (!weightless.empty() && total - for_weighted > weightless_floors) {
    const std::vector<double> even(weights.size(), 1.0);
    fill(even, floors, caps, weightless, static_cast<double>(total - for_weighted), x);
  }
  return x;
}

std::vector<double> water_fill(std::span<const double> weights, std::span<const std::int64_t> caps,
                               std::int64_t total) {
  const std::vector<std::int64_t> floors(weights.size(), 0);
  return water_fill(weights, floors, caps, total);
}

std::vector<std::int64_t> round_shares(std::span<const double> shares, std::int64_t total) {
  std::vector<std::int64_t> rounded(shares.size());
  std::vector<double> fraction(shares.size());
  for (std::size_t i = 0; i < shares.size(); ++i) {
    const double floor = std::floor(shares[i] + kShareTolerance);
    rounded[i] = static_cast<std::int64_t>(floor);
    fraction[i] = std::max(shares[i] - floor, 0.0);
  }
  std::vector<std::size_t> by_fraction(shares.size());
  std::iota(by_fraction.begin(), by_fraction.end(), 0);
  std::stable_sort(by_fraction.begin(), by_fraction.end(),
                   [&](std::size_t a, std::size_t b) { return fraction[a] > fraction[b]; });
  // Runs of equal fractions are ordered by index.
  for (auto begin = by_fraction.begin(); begin != by_fraction.end();) {
    auto end = begin + 1;
    while (end != by_fraction.end() && fraction[*(end - 1)] - fraction[*end] <= kShareTolerance) ++end;
    std::sort(begin, end);
    begin = end;
  }
  std::int64_t missing = total - std::accumulate(rounded.begin(), rounded.end(), std::int64_t{0});
  for (auto i = by_fraction.begin(); missing > 0 && i != by_fraction.end(); ++i, --missing) ++rounded[*i];
  return rounded;
}

std::int64_t ceiling(double share) { return static_cast<std::int64_t>(std::ceil(share - kShareTolerance)); }

}  // namespace winnow
