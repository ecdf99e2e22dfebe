// combined: kvzip plus rms. What a pass that repeats the context looks up, and what the output of attention is made of:
// with the first alone running text suffers, with the second alone needles are lost.
//
// When what is stored is cut again there is no context to repeat: entries are scored by rms alone, and what an earlier
// cut has seen in them stays with them.
//
// Where what the pass looks up cannot fit in the budget, the engine takes rms in its place (engine/session_options.cc).
//
// The specification divides both by their means over the whole model, which are known after the last layer only. One
// factor for all layers is what matters (a factor per layer doubles the loss at 5 % of the bytes), its size is not: the
// ratio of the means grows with the square root of the number of tokens, and so does this one. So a layer's scores are
// final with the layer, and a cascade keeps what one cut would.
#include <cmath>
#include <cstddef>

#include "eviction/options/registry.h"

namespace winnow {
namespace {

class Combined final : public Scorer {
 public:
  EvidenceNeeds needs(const EvictionOptions& options) const override {
    EvidenceNeeds needs = rms_scorer().needs(options);
    needs.reconstruction_pass = true;
    return needs;
  }
  std::vector<Option> options() const override {
    return {number_option("rms-weight", 0, kMaxNumberOption, 2, "of rms beside kvzip, times the root of the tokens"),
            choice_option("repeat", {"fitting", "always"}, "fitting",
                          "the pass that repeats the prompt: where what it looks up may fit in the budget, or always")};
  }
  bool is_mass() const override { return true; }

  LayerScores score(LayerEvidence& evidence, const EvictionOptions& options) const override {
    const LayerScores& rms = evidence.reference_rms();
    const auto factor = static_cast<float>(options.number("rms-weight") * std::sqrt(evidence.view().n_tokens));
    LayerScores scores;
    if (!evidence.view().passes.empty()) scores = kvzip_scorer().score(evidence, options);
    scores.resize(rms.size());
    for (std::size_t h = 0; h < scores.size(); ++h) {
      scores[h].resize(rms[h].size());
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
