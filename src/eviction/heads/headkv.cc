// headkv: shares by a static importance of each KV head, over all heads of the model.
// HeadKV, arXiv 2410.19258:
//   share_h = B (1 - 1/beta) + pool * importance_h, pool = B/beta * L * Hkv (tables/head_importance_table.h)
// Under another layer allocator the heads of a layer share its budget by these numbers.
#include "eviction/cut/shares.h"
#include "eviction/options/registry.h"
#include "eviction/tables/head_importance_table.h"

namespace winnow {
namespace {

class HeadKvHeads final : public HeadAllocator {
 public:
  std::vector<Option> options() const override { return headkv_options(); }
  const HeadTable* table() const override { return &headkv_table(); }

  std::vector<double> shares(const HeadRequest& request, const EvictionOptions&) const override {
    return water_fill(request.weights, head_caps(request.ranking), request.budget);
  }
};

}  // namespace

const HeadAllocator& headkv_heads() {
  static const HeadKvHeads instance;
  return instance;
}

}  // namespace winnow
