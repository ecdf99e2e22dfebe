// flat: a head gets as many entries as it has among the layer's best scores, without a safeguard.
// LAVa (EMNLP 2025), Algorithm 1:
//   share_h = | head h's candidates among the layer's `budget` best |
#include "eviction/options/registry.h"

namespace winnow {
namespace {

class Flat final : public HeadAllocator {
 public:
  std::vector<double> shares(const HeadRequest& request, const EvictionOptions&) const override {
    const std::vector<std::int64_t> counts = request.ranking.flat_counts(request.budget);
    return {counts.begin(), counts.end()};
  }
};

}  // namespace

const HeadAllocator& flat_heads() {
  static const Flat instance;
  return instance;
}

}  // namespace winnow
