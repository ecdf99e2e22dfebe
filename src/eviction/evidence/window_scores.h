// The score that snapkv, vatp and lava share: window attention reduced over rows, pooled, reduced over the group.
#pragma once

#include "winnow/scorer.h"

namespace winnow {

// rows, pool, kernel, order, group.
std::vector<Option> window_score_options();
EvidenceNeeds window_score_needs(const EvictionOptions& options);
LayerScores window_scores(LayerEvidence& evidence, const EvictionOptions& options);

}  // namespace winnow
