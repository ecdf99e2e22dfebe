// The choice of the kept entries that are stored in more bits than the others: the best ones, in whole pages of a head.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "winnow/cut_shape.h"

namespace winnow {

// Returns how many entries of each head are stored in more bits: a multiple of high.unit each, together fraction *
// total entries rounded down, or as many as there is room for. Heads get them in proportion to their weights. kept:
// entries that each head keeps. round_up: rounds every head's number up instead, so that no later stage of a cascade
// exceeds it.
std::vector<std::int64_t> high_counts(const HighPrecision& high, double total, std::span<const double> weights,
                                      std::span<const std::int64_t> kept, bool round_up);

// The entries that a cut keeps of a head.
struct KeptHead {
  std::span<const std::int32_t> kept;  // indices of kept entries: n_sinks, then one for each of `chosen`, then n_window
  std::span<const std::int32_t> chosen;  // offsets of candidates, ascending
  std::span<const std::int32_t> order;   // offsets of all candidates, best first
  std::int32_t n_sinks, n_window;
};

// Returns the n best of `kept`, ascending. The best are the window, from its end, then the candidates in their order.
// The head's first high.n_plain entries are stored unquantised, and so are not among them.
std::vector<std::int32_t> high_entries(const HighPrecision& high, const KeptHead& head, std::int64_t n);

}  // namespace winnow
