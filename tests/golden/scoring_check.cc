// scoring-*.gguf: scores, statistics, shares, budgets and kept sets of one prompt.
#include <algorithm>
#include <functional>
#include <map>
#include <numeric>

#include "eviction/options/registry.h"
#include "eviction/selectors/critical.h"
#include "golden/checks.h"
#include "golden/scoring_case.h"
#include "golden/scoring_measures.h"
#include "study/losses.h"
#include "winnow/error.h"

namespace winnow::golden {
namespace {

constexpr double kSetMargin = 1e-5;
constexpr double kRoundMargin = 1e-3;

// The report of a cut, and the positions that it keeps: [n_layer][n_kv_head].
struct CutResult {
  CutReport report;
  std::vector<std::vector<std::vector<std::int32_t>>> kept;
};

// Runs a cut over the case's layers. `one_shot`: as a re-cut of a cache that is stored in full.
CutResult run_cut(const ScoringCase& prompt, const EvictionOptions& options, std::int64_t total, bool one_shot) {
  const std::int64_t n_heads = std::int64_t{prompt.n_layer} * prompt.n_kv_head;
  Cut cut(options, {.heads = std::vector<int>(prompt.n_layer, prompt.n_kv_head),
                    .n_tokens = prompt.n_tokens,
                    .total = total,
                    .stored = one_shot ? n_heads * prompt.n_tokens : 0});
  CutResult result;
  std::vector<std::int32_t> all(prompt.n_tokens);
  std::iota(all.begin(), all.end(), 0);
  result.kept.assign(prompt.n_layer, std::vector<std::vector<std::int32_t>>(prompt.n_kv_head, all));
  if (!cut.keeps_everything()) {
    for (int l = 0; l < prompt.n_layer; ++l) {
      prompt.with_view(l, Cut::needs(options), [&](const LayerView& view) {
        for (const LayerCut& layer_cut : cut.add_layer(view, serial())) {
          for (int h = 0; h < prompt.n_kv_head; ++h) {
            std::vector<std::int32_t> survivors;
            for (const std::int32_t i : layer_cut.kept[h]) survivors.push_back(result.kept[layer_cut.layer][h].at(i));
            result.kept[layer_cut.layer][h] = std::move(survivors);
          }
        }
      });
    }
  }
  result.report = cut.report();
  return result;
}

// Returns the indices of the entries that CriticalKV keeps before its second stage: sinks, window and the first stage.
std::vector<std::vector<std::int32_t>> certain_entries(LayerEvidence& evidence, const EvictionOptions& options,
                                                       const std::vector<std::int32_t>& budgets) {
  const LayerScores scores = find_scorer(options.scorer).score(evidence, options);
  const LayerRanking ranking(evidence, scores);
  std::vector<std::vector<std::int32_t>> certain(evidence.n_kv_head());
  for (int h = 0; h < evidence.n_kv_head(); ++h) {
    const std::int32_t n_window = evidence.n_entries(h) - evidence.n_prefix(h);
    for (std::int32_t i = 0; i < evidence.n_sinks(h); ++i) certain[h].push_back(i);
    const std::int64_t n_first = first_stage_size(budgets[h] - n_window - evidence.n_sinks(h), options);
    for (std::int64_t i = 0; i < n_first; ++i) certain[h].push_back(evidence.n_sinks(h) + ranking.head(h).order[i]);
    for (std::int32_t i = 0; i < n_window; ++i) certain[h].push_back(evidence.n_prefix(h) + i);
  }
  return certain;
}

// Compares the losses and bounds of the last row, and checks that each bound holds.
void check_losses(const GoldenFile& file, const std::string& prefix, const std::string& what, const ScoringCase& prompt,
                  const EvictionOptions& options, const CutResult& result, Tally& tally) {
  EvidenceNeeds needs = Cut::needs(options);
  needs.window_rows = std::max(needs.window_rows, 1);
  needs.output_projection = true;
  std::map<std::string, std::vector<double>> actual;
  const auto append = [&](const char* name, const std::vector<double>& values) {
    actual[name].insert(actual[name].end(), values.begin(), values.end());
  };
  for (int l = 0; l < prompt.n_layer; ++l) {
    prompt.with_view(l, needs, [&](const LayerView& view) {
      std::vector<std::vector<std::int32_t>> certain;
      if (options.selector == "critical") {
        LayerEvidence evidence(view, options, needs.window_columns, serial());
        certain = certain_entries(evidence, options, result.report.budget[l]);
      }
      // Positions are indices, since the case's layers are stored in full.
      const LayerLosses losses = measure_losses(view, result.kept[l], certain, serial());
      append("loss_head", losses.loss_head);
      append("theta", losses.theta);
      append("theta_hat", losses.theta_hat);
      append("loss_layer", {losses.loss_layer});
      append("ada_eps", {losses.ada_eps});
      append("lava_bound", {losses.lava_bound});
    });
  }
  for (const auto& [name, values] : actual) {
    if (file.has(prefix + name)) tally.close(what + name, values, file.doubles(prefix + name), kLosses);
  }
  const auto holds = [&](const char* lower, const char* upper) {
    if (actual[upper].empty()) return;
    bool all = true;
    for (std::size_t i = 0; i < actual[lower].size(); ++i)
      all &= actual[lower][i] <= actual[upper][i] * (1 + 1e-5) + 1e-5;
    tally.require(what + lower + " <= " + upper, all, "the bound does not hold");
  };
  holds("loss_head", "theta");
  holds("theta", "theta_hat");
  holds("loss_layer", "ada_eps");
  holds("loss_layer", "lava_bound");
}

// The parts of one cut that the skip rules exclude from comparison.
struct Margins {
  bool skips_all = false;         // the roundings are too close to call
  std::vector<bool> skips_layer;  // [n_layer]
  std::vector<bool> skips_head;   // [n_layer * n_kv_head]
};

Margins read_margins(const GoldenFile& file, const std::string& prefix, const ScoringCase& prompt, Tally& tally) {
  Margins margins;
  margins.skips_layer.assign(prompt.n_layer, false);
  margins.skips_head.assign(std::size_t(prompt.n_layer) * prompt.n_kv_head, false);
  if (file.has(prefix + "round_margin") && file.doubles(prefix + "round_margin").at(0) < kRoundMargin) {
    margins.skips_all = true;
    tally.skip_margin();
    return margins;
  }
  if (file.has(prefix + "flat_margin")) {
    const std::vector<double> flat = file.doubles(prefix + "flat_margin");
    for (int l = 0; l < prompt.n_layer; ++l) {
      if (flat.at(l) >= kSetMargin) continue;
      margins.skips_layer[l] = true;
      tally.skip_margin();
    }
  }
  if (file.has(prefix + "margin")) {
    const std::vector<double> margin = file.doubles(prefix + "margin");
    for (std::size_t i = 0; i < margins.skips_head.size(); ++i) {
      if (margin.at(i) >= kSetMargin || margins.skips_layer[i / prompt.n_kv_head]) continue;
      margins.skips_head[i] = true;
      tally.skip_margin();
    }
  }
  return margins;
}

void compare_sets(const GoldenFile& file, const std::string& prefix, const std::string& what, const ScoringCase& prompt,
                  const CutResult& result, const Margins& margins, std::int64_t total, Tally& tally) {
  const std::vector<std::int32_t> budget = file.int32s(prefix + "budget").data;
  const std::vector<std::int32_t> kept = file.int32s(prefix + "kept").data;
  const std::int64_t expected_total =
      std::min<std::int64_t>(total, std::int64_t{prompt.n_tokens} * prompt.n_layer * prompt.n_kv_head);
  std::int64_t sum = 0;
  for (const auto& layer : result.report.budget) sum = std::accumulate(layer.begin(), layer.end(), sum);
  tally.require(what + "total", sum == expected_total,
                std::to_string(sum) + " entries instead of " + std::to_string(expected_total));
  if (margins.skips_all) return;

  std::string bad_budget, bad_set;
  std::size_t begin = 0;
  for (int l = 0; l < prompt.n_layer; ++l) {
    for (int h = 0; h < prompt.n_kv_head; ++h) {
      const std::size_t i = std::size_t(l) * prompt.n_kv_head + h;
      const std::size_t end = begin + budget.at(i);
      if (end > kept.size()) throw std::runtime_error(prefix + "kept is shorter than its budgets");
      const std::string where = " layer " + std::to_string(l) + " head " + std::to_string(h);
      if (!margins.skips_layer[l] && result.report.budget[l][h] != budget[i]) {
        bad_budget +=
            where + ": " + std::to_string(result.report.budget[l][h]) + " instead of " + std::to_string(budget[i]);
      }
      if (!margins.skips_layer[l] && !margins.skips_head[i] &&
          !std::equal(kept.begin() + begin, kept.begin() + end, result.kept[l][h].begin(), result.kept[l][h].end())) {
        std::vector<std::int32_t> lost;
        std::set_difference(kept.begin() + begin, kept.begin() + end, result.kept[l][h].begin(),
                            result.kept[l][h].end(), std::back_inserter(lost));
        bad_set +=
            where + ": " + std::to_string(lost.size()) + " of " + std::to_string(budget[i]) + " positions missing";
        if (!lost.empty()) bad_set += " (first " + std::to_string(lost.front()) + ")";
      }
      begin = end;
    }
  }
  tally.require(what + "budget", bad_budget.empty(), bad_budget);
  tally.require(what + "kept", bad_set.empty(), bad_set);
}

void check_config(const GoldenFile& file, const ScoringCase& prompt, const std::string& config,
                  const EvictionOptions& options, const std::string& label, std::int64_t total, Tally& tally) {
  const std::string prefix = config + "/" + label + "/";
  const std::string what = file.path() + " " + prefix;
  const std::int64_t n_heads = std::int64_t{prompt.n_layer} * prompt.n_kv_head;
  if (!file.has(prefix + "budget")) {
    // The protected entries do not fit, so the file has no budget, and a cut must throw.
    const std::int64_t needed = std::min<std::int64_t>(prompt.n_tokens, options.window + options.sinks) * n_heads;
    if (total >= needed || prompt.n_tokens * n_heads <= total) return;
    try {
      run_cut(prompt, options, total, false);
      tally.fail(what, "a budget below sinks + window was not refused");
    } catch (const Error& error) {
      tally.require(what, error.code() == ErrorCode::kInvalidArgument, error.what());
    }
    return;
  }
  const CutResult staged = run_cut(prompt, options, total, false);
  const Margins margins = read_margins(file, prefix, prompt, tally);
  if (file.has(prefix + "layer_share")) {
    tally.close(what + "layer_share", staged.report.layer_share, file.doubles(prefix + "layer_share"), kScores);
  }
  if (file.has(prefix + "head_share") && !margins.skips_all) {
    std::vector<double> actual = flatten(staged.report.head_share);
    const std::vector<double> expected = file.doubles(prefix + "head_share");
    for (std::size_t i = 0; i < std::min(actual.size(), expected.size()); ++i) {
      if (margins.skips_layer[i / prompt.n_kv_head]) actual[i] = expected[i];
    }
    tally.close(what + "head_share", actual, expected, kScores);
  }
  compare_sets(file, prefix, what, prompt, staged, margins, total, tally);
  const bool is_sure =
      !margins.skips_all &&
      std::find(margins.skips_layer.begin(), margins.skips_layer.end(), true) == margins.skips_layer.end() &&
      std::find(margins.skips_head.begin(), margins.skips_head.end(), true) == margins.skips_head.end();
  if (is_sure && file.has(prefix + "loss_head")) check_losses(file, prefix, what, prompt, options, staged, tally);
  const CutResult one_shot = run_cut(prompt, options, total, true);
  tally.require(what + "staged equals one-shot", one_shot.kept == staged.kept, "other entries are kept");
}

}  // namespace

void check_scoring(const std::string& path, Tally& tally) {
  const GoldenFile file(path);
  const ScoringCase prompt(file);
  const auto show = [&](int layer, const EvidenceNeeds& needs, const std::function<void(const LayerView&)>& body) {
    prompt.with_view(layer, needs, body);
  };
  for (const auto& [name, values] : measure_statistics(prompt.n_layer, show)) {
    if (file.has(name)) tally.close(file.path() + " " + name, values, file.doubles(name), kScores);
  }
  for_each_scorer(file, tally, [&](const std::string& name, const EvictionOptions& options) {
    compare_scores(file, name, options, measure_scores(prompt.n_layer, show, options), kScores, tally);
  });

  auto importance = std::make_shared<HeadImportance>();
  auto profile = std::make_shared<UtilityProfile>();
  if (file.has("headkv.importance")) {
    *importance = head_importance(file, prompt.n_kv_head);
  }
  if (file.has("lukv.profile")) {
    profile->heads.assign(prompt.n_layer, prompt.n_kv_head);
    profile->kept = file.doubles("lukv.profile");
    for (int i = 1; i < 100; ++i) profile->ratios.push_back(i / 100.0);
  }
  const std::int64_t n_heads = std::int64_t{prompt.n_layer} * prompt.n_kv_head;
  for (const std::string& config : file.texts("winnow.configs")) {
    EvictionOptions options;
    if (!read_options(file, "winnow.config." + config, options, tally)) continue;
    options.importance = importance;
    options.utility_profile = profile;
    for (const std::int64_t budget : file.integers("winnow.budgets")) {
      check_config(file, prompt, config, options, std::string("b").append(std::to_string(budget)), budget * n_heads,
                   tally);
    }
    for (const std::int64_t total : file.integers("winnow.totals")) {
      check_config(file, prompt, config, options, std::string("t").append(std::to_string(total)), total, tally);
    }
  }
}

}  // namespace winnow::golden
