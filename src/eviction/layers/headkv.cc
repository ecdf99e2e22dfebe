// headkv: by a static per-head importance, over all heads of the model. HeadKV, arXiv 2410.19258.
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
