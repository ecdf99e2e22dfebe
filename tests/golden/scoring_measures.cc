#include "golden/scoring_measures.h"

#include <algorithm>

#include "eviction/cut/cut.h"
#include "eviction/layers/cake.h"
#include "eviction/layers/lava.h"
#include "eviction/options/registry.h"
#include "golden/scoring_case.h"
#include "winnow/error.h"
#include "winnow/layer_evidence.h"

namespace winnow::golden {

std::vector<double> measure_scores(int n_layer, const ShowLayer& show, const EvictionOptions& options) {
  const Scorer& scorer = find_scorer(options.scorer);
  const EvidenceNeeds needs = scorer.needs(options);
  std::vector<double> scores;
  for (int l = 0; l < n_layer; ++l) {
    show(l, needs, [&](const LayerView& view) {
      LayerEvidence evidence(view, options, needs.window_columns, serial());
      for (const std::vector<float>& head : scorer.score(evidence, options)) {
        scores.insert(scores.end(), head.begin(), head.end());
      }
    });
  }
  return scores;
}

std::map<std::string, std::vector<double>> measure_statistics(int n_layer, const ShowLayer& show) {
  const EvictionOptions cake = EvictionOptions::parse("cake");
  const EvictionOptions lava = EvictionOptions::parse("lava");
  EvidenceNeeds needs = Cut::needs(cake);
  needs |= Cut::needs(lava);
  needs.output_projection = true;
  std::map<std::string, std::vector<double>> statistics;
  for (int l = 0; l < n_layer; ++l) {
    show(l, needs, [&](const LayerView& view) {
      LayerEvidence evidence(view, cake, needs.window_columns, serial());
      const CakePreference preference = cake_preference(evidence, cake);
      statistics["cake.dispersion"].push_back(preference.dispersion);
      statistics["cake.shift"].push_back(preference.shift);
      for (const std::vector<float>& head : evidence.value_l1_norms()) {
        statistics["lava.value_max"].push_back(*std::max_element(head.begin(), head.end()));
      }
      for (const std::vector<float>& head : evidence.projected_value_norms()) {
        std::vector<double>& terms = statistics["critical.value_term"];
        terms.insert(terms.end(), head.begin(), head.end());
      }
      LayerEvidence lava_evidence(view, lava, needs.window_columns, serial());
      statistics["lava.entropy"].push_back(lava_entropy(find_scorer("lava").score(lava_evidence, lava)));
    });
  }
  return statistics;
}

void compare_scores(const GoldenFile& file, const std::string& name, const EvictionOptions& options,
                    std::vector<double> actual, const Tolerance& tolerance, Tally& tally) {
  const std::string tensor = "score/" + name;
  std::vector<double> expected = file.doubles(tensor);
  if (options.scorer == "expected-attention") {  // the first keys are left out of the softmax
    const std::int64_t n_prefix = file.floats(tensor).dim(0);
    for (std::size_t i = 0; i < std::min(actual.size(), expected.size()); ++i) {
      if (static_cast<std::int64_t>(i) % n_prefix < options.integer("ea-skip")) actual[i] = expected[i] = 0;
    }
  }
  tally.close(file.path() + " " + tensor, actual, expected, tolerance);
}

bool read_options(const GoldenFile& file, const std::string& key, EvictionOptions& options, Tally& tally) {
  try {
    options = parse_option_list(file.text(key));
    find_parts(options);
    return true;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kNotFound) throw;
    tally.fail(file.path() + " " + key, error.what());
    return false;
  }
}

void for_each_scorer(const GoldenFile& file, Tally& tally,
                     const std::function<void(const std::string& name, const EvictionOptions& options)>& body) {
  EvictionOptions options;
  for (const std::string& name : file.texts("winnow.scorers")) {
    if (read_options(file, "winnow.scorer." + name, options, tally) && file.has("score/" + name)) body(name, options);
  }
  // Every token of the context is scored: no entry is protected.
  if (file.has("score/kvzip")) body("kvzip", EvictionOptions::parse("snapkv:scorer=kvzip,window=0"));
}

}  // namespace winnow::golden
