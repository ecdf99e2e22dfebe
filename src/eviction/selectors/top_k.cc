// top-k: the best scores. Equal scores: the later token.
#include <algorithm>

#include "eviction/registry.h"

namespace winnow {
namespace {

class TopK final : public Selector {
 public:
  std::vector<std::int32_t> select(const HeadRanking& ranking, std::int64_t budget,
                                   const EvictionOptions&) const override {
    std::vector<std::int32_t> chosen(ranking.order.begin(), ranking.order.begin() + budget);
    std::sort(chosen.begin(), chosen.end());
    return chosen;
  }
};

}  // namespace

const Selector& top_k_selector() {
  static const TopK instance;
  return instance;
}

}  // namespace winnow
