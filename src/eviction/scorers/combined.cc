// combined: kvzip plus rms, winnow's own scorer. The pass that repeats the context finds tokens that are looked up, and
// the reference rows find tokens that attention's output consists of: kvzip alone harms running text, and rms alone
// loses needles.
//   score_i = kvzip_i + rms-weight * sqrt(N) * rms_i
// With question=last, what the question looks at counts as well (evidence/question_scores.h). It has no factor, since
// it is made of attention weights as kvzip is; at 90 times the weight it displaced what the pass looks up.
//
// When a stored cache is cut again there is no context to repeat: entries are then scored by rms alone, and keep the
// score of an earlier cut if that is higher.
//
// If the entries that the pass looks up cannot fit in the budget, the engine uses rms instead; if they fit easily, the
// pass leaves out the first layers (engine/session_options.cc, option repeat; engine/prefill/reconstruction.h).
//
// Dividing both by their means over the whole model would need the last layer before the first can be cut. It matters
// that all layers have one factor (a factor per layer doubles the loss at 5 % of the bytes), but not how large it is.
// The ratio of the means grows with the square root of the number of tokens, as this factor does. A layer's scores are
// thus final with the layer, and a cascade keeps what a single cut would.
#include <cmath>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "eviction/evidence/question_scores.h"
#include "eviction/options/registry.h"

namespace winnow {
namespace {

// By the budget, the engine sets another weight where there is room for it (engine/session_options.cc).
constexpr const char* kByBudget = "by-budget";
constexpr double kLeastRmsWeight = 2;

Option rms_weight_option() {
  Option option = number_option("rms-weight", 0, kMaxNumberOption, kLeastRmsWeight,
                                "of rms next to kvzip, times the root of the tokens");
  option.values += std::string(" | ") + kByBudget;
  option.fallback = kByBudget;
  option.read = [number = option.read](std::string_view text) {
    return text == kByBudget ? std::optional<std::string>(kByBudget) : number(text);
  };
  return option;
}

double rms_weight(const EvictionOptions& options) {
  return options.text_of("rms-weight") == kByBudget ? kLeastRmsWeight : options.number("rms-weight");
}

class Combined final : public Scorer {
 public:
  EvidenceNeeds needs(const EvictionOptions& options) const override {
    EvidenceNeeds needs = rms_scorer().needs(options);
    const bool is_late = options.text_of("repeat") == "late";
    needs.late_repeat = is_late;
    needs.reconstruction_pass = !is_late;
    return needs;
  }
  std::vector<Option> options() const override {
    std::vector<Option> options = question_options();
    options.insert(
        options.end(),
        {rms_weight_option(),
         choice_option("repeat", {"fitting", "always", "late", "whole"}, "fitting",
                       "the pass that repeats the prompt: where what it looks up may fit in the budget, or always; "
                       "through the later layers or the whole model instead of by the budget")});
    return options;
  }
  bool is_non_negative() const override { return true; }

  LayerScores score(LayerEvidence& evidence, const EvictionOptions& options) const override {
    const LayerScores& rms = evidence.reference_rms();
    const auto factor = static_cast<float>(rms_weight(options) * std::sqrt(evidence.layer().n_tokens));
    LayerScores scores;
    if (!evidence.layer().passes.empty()) scores = kvzip_scorer().score(evidence, options);
    scores.resize(rms.size());
    for (std::size_t h = 0; h < scores.size(); ++h) {
      scores[h].resize(rms[h].size());
      for (std::size_t i = 0; i < scores[h].size(); ++i) scores[h][i] += factor * rms[h][i];
    }
    add_question_scores(evidence, options, scores);
    return scores;
  }
};

}  // namespace

const Scorer& combined_scorer() {
  static const Combined instance;
  return instance;
}

}  // namespace winnow
