// uniform: every layer gets the same number of entries for each of its KV heads.
//   share_l = n_kv_head(l), up to a factor; 1/L of the total if all layers have the same number of KV heads
#include "eviction/options/registry.h"

namespace winnow {
namespace {

class UniformLayers final : public LayerAllocator {
 public:
  std::vector<double> weights(const CutShape& shape, const EvictionOptions&) const override {
    return by_heads(shape, [](int) { return 1.0; });
  }
};

}  // namespace

const LayerAllocator& uniform_layers() {
  static const UniformLayers instance;
  return instance;
}

}  // namespace winnow
