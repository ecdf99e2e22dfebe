// top-k: the best scores. Equal scores: the later token.
#include <bit>
#include <cstddef>
#include <cstdint>

#include "eviction/registry.h"

namespace winnow {
namespace {

class TopK final : public Selector {
 public:
  std::vector<std::int32_t> select(const HeadRanking& ranking, std::int64_t budget,
                                   const EvictionOptions&) const override {
    // A cascade chooses again with every layer: marks are read faster in their order than indices are sorted.
    std::vector<std::uint64_t> marks((ranking.order.size() + 63) / 64);
    for (std::int64_t i = 0; i < budget; ++i) {
      const auto candidate = static_cast<std::uint32_t>(ranking.order[static_cast<std::size_t>(i)]);
      marks[candidate / 64] |= std::uint64_t{1} << candidate % 64;
    }
    std::vector<std::int32_t> chosen;
    chosen.reserve(static_cast<std::size_t>(budget));
    for (std::size_t word = 0; word < marks.size(); ++word) {
      for (std::uint64_t left = marks[word]; left != 0; left &= left - 1) {
        chosen.push_back(static_cast<std::int32_t>(word) * 64 + std::countr_zero(left));
      }
    }
    return chosen;
  }
};

}  // namespace

const Selector& top_k_selector() {
  static const TopK instance;
  return instance;
}

}  // namespace winnow
