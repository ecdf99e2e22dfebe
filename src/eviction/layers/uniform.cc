// uniform: every layer the same for each of its heads.
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
