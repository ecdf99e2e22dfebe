// What one layer's full attention is like: CAKE's, LAVa's and Ada-KV's figures.
#pragma once

#include "eviction/cut/layer_scoring.h"
#include "study/analysis/analysis.h"
#include "winnow/layer_view.h"

namespace winnow {

inline constexpr int kFactsWindow = 32;  // rows, as most methods have

EvidenceNeeds attention_facts_needs();

// `scoring` has the columns that the needs name.
LayerAttention attention_facts(LayerScoring& scoring);

}  // namespace winnow
