// headkv: shares by a static importance of each KV head, over all heads of the model.
// HeadKV, arXiv 2410.19258:
//   share_h = B (1 - 1/beta) + pool * importance_h, pool = B/beta * L * Hkv (tables/head_importance_table.h)
#include "eviction/options/registry.h"
#include "eviction/tables/head_importance_table.h"

namespace winnow {
namespace {

class HeadKvLayers final : public LayerAllocator {
 public:
  std::vector<Option> options() const override { return headkv_options(); }
  const HeadTable* table() const override { return &headkv_table(); }
};

}  // namespace

const LayerAllocator& headkv_layers() {
  static const HeadKvLayers instance;
  return instance;
}

}  // namespace winnow
