// knorm: minus the L2 norm of a key, rotated as it is stored.
// Devoto et al., "A Simple and Effective L2 Norm-Based Strategy for KV Cache Compression", arXiv 2406.11430:
//   score_i = -|| k_i ||_2
#include "eviction/options/registry.h"

namespace winnow {
namespace {

class KNorm final : public Scorer {
 public:
  EvidenceNeeds needs(const EvictionOptions&) const override { return {}; }

  LayerScores score(LayerEvidence& evidence, const EvictionOptions&) const override {
    LayerScores scores = evidence.key_l2_norms();
    for (int h = 0; h < evidence.n_kv_head(); ++h) {
      scores[h].resize(evidence.n_prefix(h));
      for (float& score : scores[h]) score = -score;
    }
    return scores;
  }
};

}  // namespace

const Scorer& knorm_scorer() {
  static const KNorm instance;
  return instance;
}

}  // namespace winnow
