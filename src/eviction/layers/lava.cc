// lava: a layer's share is in proportion to the entropy of its normalised scores, in cascade.
// LAVa (EMNLP 2025), the dynamic layer budget:
//   share_l = e_l / sum e, e_l = -sum p ln p / ln n, p = score / sum of scores
// p runs over the layer's n (KV head, prefix token) pairs, sinks included. (The paper divides by H * N instead of ln n:
// the shares are the same.)
#include "eviction/layers/lava.h"

#include <cmath>

#include "eviction/options/registry.h"

namespace winnow {
namespace {

class LavaLayers final : public LayerAllocator {
 public:
  bool is_measured() const override { return true; }
  bool needs_non_negative_scores() const override { return true; }

  double measure(LayerEvidence&, const LayerScores& scores, const EvictionOptions&) const override {
    return lava_entropy(scores);
  }
};

}  // namespace

double lava_entropy(const LayerScores& scores) {
  double sum = 0;
  std::size_t n = 0;
  for (const std::vector<float>& head : scores) {
    for (const float score : head) sum += static_cast<double>(score);
    n += head.size();
  }
  if (!(sum > 0) || n < 2) return 0;
  double entropy = 0;
  for (const std::vector<float>& head : scores) {
    for (const float score : head) {
      const double p = static_cast<double>(score) / sum;
      if (p > 0) entropy -= p * std::log(p);
    }
  }
  return entropy / std::log(static_cast<double>(n));
}

const LayerAllocator& lava_layers() {
  static const LavaLayers instance;
  return instance;
}

}  // namespace winnow
