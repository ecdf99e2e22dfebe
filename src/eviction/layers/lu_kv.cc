// lu-kv: by a calibrated profile, over all heads of the model. LU-KV ("Predicting Future Utility").
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
