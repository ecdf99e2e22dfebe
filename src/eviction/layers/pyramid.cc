// pyramid: linear from B_0 = 2B - B_{L-1} down to B_{L-1} = B / beta, B the average prefix budget.
// Cai et al., "PyramidKV: Dynamic KV Cache Compression based on Pyramidal Information Funneling", arXiv 2406.02069.
#include "eviction/registry.h"

namespace winnow {
namespace {

class Pyramid final : public LayerAllocator {
 public:
  OptionNames options() const override { return {"beta"}; }

  std::vector<double> weights(const CutShape& shape, const EvictionOptions& options) const override {
    std::vector<double> weights;
    const double last = 1.0 / options.beta;
    const double first = 2.0 - last;
    for (int l = 0; l < shape.n_layer; ++l) {
      weights.push_back(shape.n_layer == 1 ? 1.0 : first + (last - first) * l / (shape.n_layer - 1));
    }
    return weights;
  }
};

}  // namespace

const LayerAllocator& pyramid_layers() {
  static const Pyramid instance;
  return instance;
}

}  // namespace winnow
