// Pooling of scores along the tokens, and their reduction over the query heads of a GQA group.
#pragma once

#include <span>
#include <vector>

#include "winnow/eviction.h"
#include "winnow/option.h"

namespace winnow {

enum class ScorePooling { kNone, kMax, kAverage };
enum class GroupReduction { kMean, kMax };

// Returns the options pool, kernel, order and group, for scorers that read them.
std::vector<Option> pooling_options();
// Returns the reduction that the option group names.
GroupReduction group_reduction(const EvictionOptions& options);

// Pools a row with stride 1 to the same length. Max ignores places outside the row; average counts them as zeros and
// always divides by kernel.
void pool_row(std::span<const float> in, ScorePooling pool, int kernel, std::span<float> out);

// Returns columns [n_group][n] pooled and then reduced to [n].
std::vector<float> pool_then_group(std::span<const float> columns, int n_group, ScorePooling pool, int kernel,
                                   GroupReduction reduction);

// Returns columns [n_group][n] pooled and reduced to [n], in the order of the options. `reduction` is the options' or
// the method's own.
std::vector<float> pool_and_group(std::span<const float> columns, int n_group, const EvictionOptions& options,
                                  GroupReduction reduction);

// Returns columns [n_group][n] reduced to [n] without pooling.
std::vector<float> group_only(std::span<const float> columns, int n_group, GroupReduction reduction);

}  // namespace winnow
