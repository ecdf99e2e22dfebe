// lu-kv: shares by a calibrated profile, over all heads of the model.
// LU-KV ("Predicting Future Utility"):
//   share_h = N * Phi_h(T / (N * Hkv * L)), Phi_h the head's kept ratio at a global ratio (tables/lu_kv_table.h)
#include "eviction/options/registry.h"
#include "eviction/tables/lu_kv_table.h"

namespace winnow {
namespace {

class LuKvLayers final : public LayerAllocator {
 public:
  std::vector<Option> options() const override { return lu_kv_options(); }
  const HeadTable* table() const override { return &lu_kv_table(); }
};

}  // namespace

const LayerAllocator& lu_kv_layers() {
  static const LuKvLayers instance;
  return instance;
}

}  // namespace winnow
