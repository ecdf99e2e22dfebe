// The rounding rule of every allocator, from real-valued weights to exact integer budgets.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace winnow {

// Fractions and shares that differ by less than this count as equal.
inline constexpr double kShareTolerance = 1e-9;

// Returns x_i = min(cap_i, max(floor_i, lambda * weight_i)) with the lambda that makes the sum `total`: entries that a
// clamp frees go to the unclamped shares in proportion to their weights. Zero weights get more than their floor only
// when all others are at their cap, and then evenly. Monotone: an x_i never grows when the total shrinks or another
// weight joins. Weights must be finite and not negative; 0 <= floor_i <= cap_i; sum floors <= total <= sum caps.
std::vector<double> water_fill(std::span<const double> weights, std::span<const std::int64_t> floors,
                               std::span<const std::int64_t> caps, std::int64_t total);

// Returns the same with all floors 0.
std::vector<double> water_fill(std::span<const double> weights, std::span<const std::int64_t> caps, std::int64_t total);

// Returns the shares rounded to integers by largest remainder: each is rounded down, and the units still missing go to
// the largest fractions, ties to the lower index. The shares' sum must be `total`; no share exceeds its integer cap.
std::vector<std::int64_t> round_shares(std::span<const double> shares, std::int64_t total);

// Returns the share rounded up, with the same tolerance.
std::int64_t ceiling(double share);

}  // namespace winnow
