// pyramid: shares that fall linearly from the first layer to the last.
// Cai et al., "PyramidKV: Dynamic KV Cache Compression based on Pyramidal Information Funneling", arXiv 2406.02069:
//   share_l = B_0 + (B_{L-1} - B_0) l / (L - 1), B_{L-1} = B / beta, B_0 = 2B - B_{L-1}
// B is the average prefix budget of a head; sinks and window come on top.
#include "eviction/options/registry.h"

namespace winnow {
namespace {

class Pyramid final : public LayerAllocator {
 public:
  std::vector<Option> options() const override {
    return {number_option("beta", 1, kMaxNumberOption, 20.0, "the last layer gets 1/beta of the average")};
  }

  std::vector<double> weights(const CutShape& shape, const EvictionOptions& options) const override {
    const double last = 1.0 / options.number("beta");
    const double first = 2.0 - last;
    const int n = shape.n_cut_layers();
    return by_heads(shape, [&](int i) { return n == 1 ? 1.0 : first + (last - first) * i / (n - 1); });
  }
};

}  // namespace

const LayerAllocator& pyramid_layers() {
  static const Pyramid instance;
  return instance;
}

}  // namespace winnow
