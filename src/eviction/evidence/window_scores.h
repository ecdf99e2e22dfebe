// The score that snapkv, vatp and lava share: the observation window's attention, reduced over its rows, pooled along
// the tokens, and reduced over the GQA group.
#pragma once

#include "winnow/scorer.h"

namespace winnow {

// Returns the options rows, pool, kernel, order and group.
std::vector<Option> window_score_options();
EvidenceNeeds window_score_needs(const EvictionOptions& options);
LayerScores window_scores(LayerEvidence& evidence, const EvictionOptions& options);

}  // namespace winnow
