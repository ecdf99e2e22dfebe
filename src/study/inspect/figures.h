// The page's charts, as SVG.
#pragma once

#include <string>
#include <vector>

#include "study/analysis/analysis.h"

namespace winnow {

// Entries kept by layer, for all cuts; and what allocators look at: CAKE's dispersion and shift, LAVa's entropy.
std::vector<std::string> layer_budget_figures(const Analysis& analysis);
// Entries kept by layer and KV head: one for each cut.
std::vector<std::string> head_budget_figures(const Analysis& analysis);
// Attention mass kept and change of the output, by layer, for all cuts.
std::vector<std::string> loss_figures(const Analysis& analysis);
// What later tokens need: LU-KV's loss and recall, by layer and over the model.
std::vector<std::string> future_figures(const Analysis& analysis);
// How concentrated the heads' attention is (Ada-KV).
std::vector<std::string> concentration_figures(const Analysis& analysis);

}  // namespace winnow
