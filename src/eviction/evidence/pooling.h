// Pooling along the tokens and reduction over the query heads of a group.
#pragma once

#include <span>
#include <vector>

#include "winnow/eviction.h"
#include "winnow/option.h"

namespace winnow {

enum class Pooling { kNone, kMax, kAverage };
enum class GroupReduction { kMean, kMax };

// The options pool, kernel, order and group, for scorers that read them.
std::vector<Option> pooling_options();
GroupReduction group_reduction(const EvictionOptions& options);

// Stride 1, same length. Max ignores what lies outside; average counts it as zeros and always divides by kernel.
void pool_row(std::span<const float> in, Pooling pool, int kernel, std::span<float> out);

// columns [n_group][n] -> [n], in the options' order. `reduction` is the options' or the method's own.
std::vector<float> pool_and_group(std::span<const float> columns, int n_group, const EvictionOptions& options,
                                  GroupReduction reduction);

// The same without pooling.
std::vector<float> group_only(std::span<const float> columns, int n_group, GroupReduction reduction);

}  // namespace winnow
