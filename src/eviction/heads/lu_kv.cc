// lu-kv: shares by a calibrated profile, over all heads of the model.
// LU-KV ("Predicting Future Utility"):
//   share_h = N * Phi_h(T / (N * Hkv * L)), Phi_h the head's kept ratio at a global ratio (tables/lu_kv_table.h)
// Under another layer allocator the heads of a layer share its budget by these numbers.
#include "eviction/cut/shares.h"
#include "eviction/options/registry.h"
#include "eviction/tables/lu_kv_table.h"

namespace winnow {
namespace {

class LuKvHeads final : public HeadAllocator {
 public:
  std::vector<Option> options() const override { return lu_kv_options(); }
  const HeadTable* table() const override { return &lu_kv_table(); }

  std::vector<double> shares(const HeadRequest& request, const EvictionOptions&) const override {
    return water_fill(request.weights, head_caps(request.ranking), request.budget);
  }
};

}  // namespace

const HeadAllocator& lu_kv_heads() {
  static const LuKvHeads instance;
  return instance;
}

}  // namespace winnow
