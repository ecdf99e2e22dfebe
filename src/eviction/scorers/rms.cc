// rms: root of the mean squared attention that a token gets from reference rows: queries of the prompt itself, spread
// over it, as if they followed it. A mean of squares is the part of the attention's output that a token's value makes
// up, where values are alike and independent.
#include "eviction/options/registry.h"

namespace winnow {
namespace {

class Rms final : public Scorer {
 public:
  EvidenceNeeds needs(const EvictionOptions&) const override {
    return {.reference_rows = true, .earlier_scores = true};
  }
  bool is_attention() const override { return true; }

  LayerScores score(LayerEvidence& evidence, const EvictionOptions&) const override { return evidence.reference_rms(); }
};

}  // namespace

const Scorer& rms_scorer() {
  static const Rms instance;
  return instance;
}

}  // namespace winnow
