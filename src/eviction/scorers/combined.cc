// combined: kvzip plus rms, the second brought to the first one's mean. What a pass that repeats the context looks up,
// and what the output of attention is made of: with the first alone running text suffers, with the second alone needles
// are lost.
//
// What is stored is cut again by rms alone: there is no context to repeat then.
//
// The ratio of the means is the layer's own, so that a layer's scores are final when the layer is: scores keep kvzip's
// scale, by which layers are ranked against each other.
#include <cstddef>

#include "eviction/registry.h"

namespace winnow {
namespace {

double mean_of(const LayerScores& scores) {
  double sum = 0;
  std::size_t n = 0;
  for (const std::vector<float>& head : scores) {
    for (const float score : head) sum += static_cast<double>(score);
    n += head.size();
  }
  return n > 0 ? sum / static_cast<double>(n) : 0.0;
}

class Combined final : public Scorer {
 public:
  EvidenceNeeds needs(const EvictionOptions& options) const override {
    EvidenceNeeds needs = rms_scorer().needs(options);
    needs.reconstruction_pass = true;
    return needs;
  }
  bool is_mass() const override { return true; }

  LayerScores score(LayerEvidence& evidence, const EvictionOptions& options) const override {
    if (evidence.view().passes.empty()) return evidence.reference_rms();
    LayerScores scores = kvzip_scorer().score(evidence, options);
    const LayerScores& rms = evidence.reference_rms();
    const double rms_mean = mean_of(rms);
    if (!(rms_mean > 0)) return scores;
    const auto factor = static_cast<float>(mean_of(scores) / rms_mean);
    for (std::size_t h = 0; h < scores.size(); ++h) {
      for (std::size_t i = 0; i < scores[h].size(); ++i) scores[h][i] += factor * rms[h][i];
    }
    return scores;
  }
};

}  // namespace

const Scorer& combined_scorer() {
  static const Combined instance;
  return instance;
}

}  // namespace winnow
