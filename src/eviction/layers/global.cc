// global: no shares: the best scores of the whole model, over all layers and heads, after `floor` of each head. Exact
// in cascade, since the best T of a union only shrinks.
#include "eviction/options/registry.h"

namespace winnow {
namespace {

class GlobalLayers final : public LayerAllocator {
 public:
  bool is_global() const override { return true; }
  std::vector<Option> options() const override {
    return {integer_option("floor", 0, kMaxIntegerOption, 8, "best entries of a head that stay whatever others score")};
  }
};

}  // namespace

const LayerAllocator& global_layers() {
  static const GlobalLayers instance;
  return instance;
}

}  // namespace winnow
