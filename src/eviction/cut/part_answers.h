// Checks of what a method's parts answer. A program may have registered parts of its own: what does not keep to their
// interfaces is its mistake, which must neither read memory that is not there nor break a budget silently. All throw
// Error(kInvalidArgument) with the part's name, the place, and what was expected.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "winnow/layer_evidence.h"
#include "winnow/ranking.h"
#include "winnow/scorer.h"

namespace winnow {

// Checks that there is a score for each entry before the window. That they are finite LayerRanking checks.
void check_scores(const std::string& scorer, const LayerEvidence& evidence, const LayerScores& scores);

// Checks that weights are n numbers from 0 up with a finite sum.
void check_weights(const std::string& part, std::span<const double> weights, std::size_t n);

// Checks that shares of a layer's budget are from 0 to each head's candidates and add up to the budget.
void check_shares(const std::string& allocator, int layer, std::span<const double> shares, std::int64_t budget,
                  const LayerRanking& ranking);
// Checks that ceilings are from 0 to each head's candidates.
void check_ceilings(const std::string& allocator, int layer, std::span<const std::int64_t> ceilings,
                    const LayerRanking& ranking);

// Checks that chosen candidates are `budget` ascending offsets below n_candidates.
void check_chosen(const std::string& selector, std::span<const std::int32_t> chosen, std::int64_t budget,
                  std::int64_t n_candidates);

}  // namespace winnow
