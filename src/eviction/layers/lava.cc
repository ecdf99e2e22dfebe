// lava: a layer's share is in proportion to the entropy of its normalised scores, in cascade.
// LAVa (EMNLP 2025), the dynamic layer budget:
//   share_l = e_l / sum e, e_l = -sum p ln p / ln n, p = score / sum of scores
// p runs over the layer's n (KV head, prefix token) pairs, sinks included. (The paper divides by H * N instead of ln n:
// the shares are the same.)
#include "eviction/layers/lava.h"

#include <cmath>
#include <numeric>
#include <vector>

#include "eviction/options/registry.h"

namespace winnow {
namespace {

class LavaLayers final : public LayerAllocator {
 public:
  bool is_measured() const override { return true; }
  bool needs_non_negative_scores() const override { return true; }

  double measure(LayerEvidence& evidence, const LayerScores& scores, const EvictionOptions&) const override {
    return lava_entropy(scores, [&](int n_items, const auto& body) { evidence.parallel(n_items, body); });
  }
};

// Returns the sum of a term of every score: of each head's on one thread, then of the heads' in order.
double sum_of(const LayerScores& scores, const ParallelFor& parallel_for, const auto& term) {
  std::vector<double> of_heads(scores.size());
  parallel_for(static_cast<int>(scores.size()), [&](int h) {
    double sum = 0;
    for (const float score : scores[static_cast<std::size_t>(h)]) sum += term(static_cast<double>(score));
    of_heads[static_cast<std::size_t>(h)] = sum;
  });
  return std::accumulate(of_heads.begin(), of_heads.end(), 0.0);
}

}  // namespace

double lava_entropy(const LayerScores& scores, const ParallelFor& parallel_for) {
  const double sum = sum_of(scores, parallel_for, [](double score) { return score; });
  std::size_t n = 0;
  for (const std::vector<float>& head : scores) n += head.size();
  if (!(sum > 0) || n < 2) return 0;
  const double entropy = sum_of(scores, parallel_for, [sum](double score) {
    const double p = score / sum;
    return p > 0 ? -p * std::log(p) : 0.0;
  });
  return entropy / std::log(static_cast<double>(n));
}

double lava_entropy(const LayerScores& scores) {
  return lava_entropy(scores, [](int n_items, const auto& body) {
    for (int i = 0; i < n_items; ++i) body(i);
  });
}

const LayerAllocator& lava_layers() {
  static const LavaLayers instance;
  return instance;
}

}  // namespace winnow
