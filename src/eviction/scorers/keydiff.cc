// keydiff: minus the cosine between the key, as stored, and the mean of the L2-normalised keys, window included.
// Park et al., "KeyDiff: Key Similarity-Based KV Cache Eviction", arXiv 2504.15364.
#include "eviction/options/registry.h"

namespace winnow {
namespace {

class KeyDiff final : public Scorer {
 public:
  EvidenceNeeds needs(const EvictionOptions&) const override { return {}; }

  LayerScores score(LayerEvidence& evidence, const EvictionOptions&) const override {
    LayerScores scores = evidence.mean_key_cosines();
    for (int h = 0; h < evidence.n_kv_head(); ++h) {
      scores[h].resize(evidence.n_prefix(h));
      for (float& score : scores[h]) score = -score;
    }
    return scores;
  }
};

}  // namespace

const Scorer& keydiff_scorer() {
  static const KeyDiff instance;
  return instance;
}

}  // namespace winnow
