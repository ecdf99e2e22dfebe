// The page's charts, as SVG.
#pragma once

#include <string>
#include <vector>

#include "study/analysis/analysis.h"

namespace winnow {

// Returns charts of the entries kept by layer, for all cuts, and of what allocators use: CAKE's dispersion and shift,
// LAVa's entropy.
std::vector<std::string> layer_budget_figures(const Analysis& analysis);
// Returns a map of the entries kept by layer and KV head for each cut.
std::vector<std::string> head_budget_figures(const Analysis& analysis);
// Returns charts of the attention mass kept and the change of the output, by layer, for all cuts.
std::vector<std::string> loss_figures(const Analysis& analysis);
// Returns charts of what later tokens need: LU-KV's loss and recall, by layer and over the model.
std::vector<std::string> future_figures(const Analysis& analysis);
// Returns maps of how concentrated the heads' attention is (Ada-KV).
std::vector<std::string> concentration_figures(const Analysis& analysis);

}  // namespace winnow
