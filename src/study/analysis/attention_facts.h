// Measures one layer's full attention: CAKE's, LAVa's and Ada-KV's figures.
#pragma once

#include "eviction/cut/layer_scoring.h"
#include "study/analysis/analysis.h"
#include "winnow/layer_view.h"

namespace winnow {

inline constexpr int kFactsWindow = 32;  // rows, as most methods have

EvidenceNeeds attention_facts_needs();

// Returns the figures of one layer. `scoring` must have the columns that attention_facts_needs() names.
LayerAttention attention_facts(LayerScoring& scoring);

}  // namespace winnow
