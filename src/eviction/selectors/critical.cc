// critical: two stages, by attention alone and then by attention x the size of the value after the output projection.
// CriticalKV, arXiv 2502.03805, Algorithm 1, with b the head's budget:
//   stage 1: the best floor(first-stage * b) by score_i
//   stage 2: the best of the rest by (score_i + critical-eps) * r_i, r_i = mean_h || v_i W_O[h] ||_1 over the GQA group
#include "eviction/selectors/critical.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "eviction/cut/shares.h"
#include "eviction/options/registry.h"
#include "eviction/selectors/chosen_candidates.h"
#include "winnow/error.h"

namespace winnow {
namespace {

class Critical final : public Selector {
 public:
  EvidenceNeeds needs(const EvictionOptions&) const override { return {.output_projection = true}; }
  std::vector<Option> options() const override {
    return {number_option("first-stage", 0, 1, 0.5, "part chosen by attention alone"),
            number_option("critical-eps", 0, kMaxNumberOption, 1e-4, "added to the scores before the product")};
  }
  bool needs_attention() const override { return true; }

  void prepare(LayerEvidence& evidence, const LayerScores& scores, const EvictionOptions& options,
               LayerRanking& ranking) const override {
    const std::vector<std::vector<float>>& norms = evidence.projected_value_norms();
    const double eps = options.number("critical-eps");
    evidence.for_each_head([&](int h) {
      std::vector<float> products;
      for (std::size_t i = evidence.n_sinks(h); i < scores[h].size(); ++i) {
        products.push_back(static_cast<float>((static_cast<double>(scores[h][i]) + eps) * norms[h][i]));
        if (std::isfinite(products.back())) continue;
        throw Error(ErrorCode::kInvalidArgument, "the value term of entry " + std::to_string(i) + " in layer " +
                                                     std::to_string(evidence.layer().layer) + ", KV head " +
                                                     std::to_string(h) +
                                                     " is not finite: the model's values are broken there");
      }
      ranking.head(h).product_order = order_by_score(products);
    });
  }

  std::vector<std::int32_t> select(const HeadRanking& ranking, std::int64_t budget,
                                   const EvictionOptions& options) const override {
    const std::int64_t n_first = first_stage_size(budget, options);
    ChosenCandidates chosen(ranking.order.size());
    for (std::int64_t i = 0; i < n_first; ++i) chosen.choose(ranking.order[i]);
    std::int64_t left = budget - n_first;
    for (auto i = ranking.product_order.begin(); left > 0 && i != ranking.product_order.end(); ++i) {
      if (chosen.choose(*i)) --left;
    }
    return chosen.ascending();
  }
};

}  // namespace

std::int64_t first_stage_size(std::int64_t budget, const EvictionOptions& options) {
  return static_cast<std::int64_t>(
      std::floor(options.number("first-stage") * static_cast<double>(budget) + kShareTolerance));
}

const Selector& critical_selector() {
  static const Critical instance;
  return instance;
}

}  // namespace winnow
