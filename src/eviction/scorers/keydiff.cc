// keydiff: minus the cosine between the key, as stored, and the mean of the L2-normalised keys, window included.
// Park et al., "KeyDiff: Key Similarity-Based KV Cache Eviction", arXiv 2504.15364.
#include <algorithm>
#include <cmath>

#include "eviction/registry.h"
#include "eviction/stored_rows.h"

namespace winnow {
namespace {

class KeyDiff final : public Scorer {
 public:
  EvidenceNeeds needs(const EvictionOptions&) const override { return {}; }

  LayerScores score(LayerEvidence& evidence, const EvictionOptions&) const override {
    const int d = evidence.view().shape.key_dim;
    LayerScores scores(evidence.n_kv_head());
    evidence.for_each_head([&](int h) {
      const kernels::HeadEntries& entries = evidence.view().heads[h];
      std::vector<double> mean(d, 0.0);  // up to a factor
      for_each_row(evidence.view().shape, entries, kernels::RowKind::kKey, entries.n_entries,
                   [&](std::int32_t, const float* key) {
                     const double norm = length(key, d);
                     for (int c = 0; c < d; ++c) mean[c] += static_cast<double>(key[c]) / norm;
                   });
      double mean_norm = 0;
      for (const double m : mean) mean_norm += m * m;
      mean_norm = std::max(std::sqrt(mean_norm), kTiny);
      scores[h].reserve(evidence.n_prefix(h));
      for_each_row(evidence.view().shape, entries, kernels::RowKind::kKey, evidence.n_prefix(h),
                   [&](std::int32_t, const float* key) {
                     double dot = 0;
                     for (int c = 0; c < d; ++c) dot += static_cast<double>(key[c]) * mean[c];
                     scores[h].push_back(static_cast<float>(-dot / (length(key, d) * mean_norm)));
                   });
    });
    return scores;
  }

 private:
  static constexpr double kTiny = 1e-30;  // a zero key has cosine 0 with anything

  static double length(const float* x, int n) {
    double sum = 0;
    for (int i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    return std::isnan(sum) ? sum : std::max(std::sqrt(sum), kTiny);
  }
};

}  // namespace

const Scorer& keydiff_scorer() {
  static const KeyDiff instance;
  return instance;
}

}  // namespace winnow
