#include "study/analysis/attention_facts.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "eviction/layers/cake.h"
#include "eviction/layers/lava.h"

namespace winnow {
namespace {

const EvictionOptions& lava_options() {
  static const EvictionOptions options = EvictionOptions::parse("lava");
  return options;
}

// Returns the share of the sum that the largest values make up, for each of kConcentrationShares of their number
// (rounded up).
std::vector<double> concentration_of(std::vector<double> values) {
  std::sort(values.begin(), values.end(), std::greater<>());
  double sum = 0;
  for (const double value : values) sum += value;
  std::vector<double> parts;
  double reached = 0;
  std::size_t n = 0;
  for (const double share : kConcentrationShares) {
    const auto end = static_cast<std::size_t>(std::ceil(share * static_cast<double>(values.size())));
    for (; n < end; ++n) reached += values[n];
    parts.push_back(sum > 0 ? reached / sum : 0.0);
  }
  return parts;
}

}  // namespace

EvidenceNeeds attention_facts_needs() {
  return {.window_rows = kFactsWindow, .window_columns = kWindowMean | kWindowM2 | kWindowEntropy};
}

LayerAttention attention_facts(LayerScoring& scoring) {
  const EvictionOptions& options = lava_options();
  LayerEvidence& evidence = scoring.evidence(options);
  LayerAttention facts;
  const CakePreference preference = cake_preference(evidence, options);
  facts.dispersion = preference.dispersion;
  facts.shift = preference.shift;
  facts.lava_entropy = lava_entropy(scoring.scores(options));
  const WindowStatistics& window = evidence.window(options.window);
  const auto n_group = static_cast<std::size_t>(evidence.n_group());
  for (std::size_t h = 0; h < window.mean.size(); ++h) {
    const std::size_t n = window.mean[h].size() / n_group;
    std::vector<double> mean(n, 0.0);
    for (std::size_t g = 0; g < n_group; ++g) {
      double shift = 0;
      for (std::size_t i = 0; i < n; ++i) {
        mean[i] += static_cast<double>(window.mean[h][g * n + i]) / static_cast<double>(n_group);
        shift += static_cast<double>(window.m2[h][g * n + i]);
      }
      facts.head_dispersion.push_back(std::max(window.entropy[h][g], 0.0));
      facts.head_shift.push_back(window.n_rows > 1 ? shift / (window.n_rows - 1) : 0.0);
    }
    facts.concentration.push_back(concentration_of(std::move(mean)));
  }
  return facts;
}

}  // namespace winnow
