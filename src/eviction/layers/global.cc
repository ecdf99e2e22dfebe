// global: there are no shares, and the best scores of the whole model stay, over all layers and heads.
//   kept = the sinks and windows, each head's `floor` best candidates, then the best candidates of the model up to T
// This is exact in cascade, since a layer's part of the best T only shrinks when a layer joins.
#include "eviction/options/registry.h"

namespace winnow {
namespace {

class GlobalLayers final : public LayerAllocator {
 public:
  bool is_global() const override { return true; }
  std::vector<Option> options() const override {
    return {integer_option("floor", 0, kMaxIntegerOption, 0, "best entries of a head that stay whatever others score")};
  }
};

}  // namespace

const LayerAllocator& global_layers() {
  static const GlobalLayers instance;
  return instance;
}

}  // namespace winnow
