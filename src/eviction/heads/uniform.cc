// uniform: every KV head of a layer gets the same.
//   share_h = budget / n_kv_head; entries that a head cannot hold go to the others
#include "eviction/cut/shares.h"
#include "eviction/options/registry.h"

namespace winnow {
namespace {

class UniformHeads final : public HeadAllocator {
 public:
  std::vector<double> shares(const HeadRequest& request, const EvictionOptions&) const override {
    const std::vector<double> even(request.ranking.n_kv_head(), 1.0);
    return water_fill(even, head_caps(request.ranking), request.budget);
  }
};

}  // namespace

const HeadAllocator& uniform_heads() {
  static const UniformHeads instance;
  return instance;
}

}  // namespace winnow
