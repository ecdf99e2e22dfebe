// top-k: the candidates with the best scores; of equal scores the later token.
//   kept = the `budget` largest score_i of the head
#include <cstddef>
#include <cstdint>

#include "eviction/options/registry.h"
#include "eviction/selectors/chosen_candidates.h"

namespace winnow {
namespace {

class TopK final : public Selector {
 public:
  std::vector<std::int32_t> select(const HeadRanking& ranking, std::int64_t budget,
                                   const EvictionOptions&) const override {
    ChosenCandidates chosen(ranking.order.size());
    for (std::int64_t i = 0; i < budget; ++i) chosen.choose(ranking.order[static_cast<std::size_t>(i)]);
    return chosen.ascending();
  }
};

}  // namespace

const Selector& top_k_selector() {
  static const TopK instance;
  return instance;
}

}  // namespace winnow
