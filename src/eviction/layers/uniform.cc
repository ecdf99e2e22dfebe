// uniform: every layer the same.
#include "eviction/registry.h"

namespace winnow {
namespace {

class UniformLayers final : public LayerAllocator {
 public:
  std::vector<double> weights(const CutShape& shape, const EvictionOptions&) const override {
    return std::vector<double>(shape.n_layer, 1.0);
  }
};

}  // namespace

const LayerAllocator& uniform_layers() {
  static const UniformLayers instance;
  return instance;
}

}  // namespace winnow
