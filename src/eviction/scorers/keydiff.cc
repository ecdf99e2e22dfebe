// keydiff: minus the cosine between a key, rotated as it is stored, and its head's mean key.
// Park et al., "KeyDiff: Key Similarity-Based KV Cache Eviction", arXiv 2504.15364:
//   score_i = -cos(k_i, mean_j k_j / || k_j ||_2), j over all stored entries, window included
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
