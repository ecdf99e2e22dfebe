// Which of the entries that a cut keeps are stored in more bits than the others: the best ones, in whole pages of a
// head.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "winnow/cut_shape.h"

namespace winnow {

// How many entries of each head are stored in more bits: a multiple of the unit each, together part * total entries
// rounded down, or as many as there is room for. weights: in proportion to which heads get them. kept: entries that
// each head keeps. round_up: every head's number rounded up instead, which no later stage of a cascade exceeds.
std::vector<std::int64_t> fine_counts(const FineShare& share, double total, std::span<const double> weights,
                                      std::span<const std::int64_t> kept, bool round_up);

// What a head keeps, as its cut has it.
struct KeptHead {
  std::span<const std::int32_t> kept;  // indices of what stays: n_sinks, then one for each of `chosen`, then the window
  std::span<const std::int32_t> chosen;  // offsets of candidates, ascending
  std::span<const std::int32_t> order;   // offsets of all candidates, best first
  std::int32_t n_sinks, n_window;
};

// The n best of `kept`, ascending: the window first, from its end, then candidates in their order. The head's first
// entries, which are stored as they come, are not among them.
std::vector<std::int32_t> fine_entries(const FineShare& share, const KeptHead& head, std::int64_t n);

}  // namespace winnow
