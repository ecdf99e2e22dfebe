// lukv.gguf: the mathematics of LU-KV's calibration, and its budgets at run time.
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <stdexcept>

#include "eviction/cut/cut.h"
#include "golden/checks.h"
#include "golden/golden_file.h"
#include "golden/scoring_case.h"
#include "study/calibrate/marginal_utility.h"

namespace winnow::golden {
namespace {

constexpr double kRoundMargin = 1e-3;

struct Sizes {
  int n_layer, n_head, n_kv_head, head_dim, n_embd, n_steps, sinks, window;
  std::int32_t n_tokens;
};

Sizes read_sizes(const GoldenFile& file) {
  const Sizes s{.n_layer = file.size("n_layer"),
                .n_head = file.size("n_head"),
                .n_kv_head = file.size("n_head_kv"),
                .head_dim = file.size("head_dim"),
                .n_embd = file.size("n_embd"),
                .n_steps = file.size("n_steps"),
                .sinks = file.size("sinks"),
                .window = file.size("window"),
                .n_tokens = file.size("n_tokens")};
  if (s.n_kv_head < 1 || s.n_head % s.n_kv_head != 0 || s.sinks + s.window >= s.n_tokens) {
    throw std::runtime_error("absurd sizes");
  }
  return s;
}

// Returns the oracle importance [n_kv_head][n_tokens] of one layer for one question.
std::vector<std::vector<double>> oracle_of(const GoldenFile& file, const Sizes& s, const std::string& prefix) {
  const std::int64_t n = s.n_tokens, d = s.head_dim;
  const std::vector<float> attention = file.sized_floats(prefix + "attention", n * s.n_head * s.n_steps);
  const std::vector<float> v = file.sized_floats(prefix + "v", d * n * s.n_kv_head);
  const std::vector<float> stored_w_o = file.sized_floats(prefix + "w_o", d * s.n_head * s.n_embd);
  std::vector<float> w_o(stored_w_o.size());
  for (std::int64_t row = 0; row < d * s.n_head; ++row) {
    for (std::int64_t j = 0; j < s.n_embd; ++j) w_o[row * s.n_embd + j] = stored_w_o[j * d * s.n_head + row];
  }
  std::vector<std::int32_t> positions(s.n_tokens);
  std::iota(positions.begin(), positions.end(), 0);
  std::vector<kernels::EntryRun> runs;
  for (int h = 0; h < s.n_kv_head; ++h) {
    const std::byte* values = std::as_bytes(std::span(v)).data() + h * n * d * 4;
    runs.push_back({.keys = values, .values = values, .positions = positions.data(), .n_entries = s.n_tokens});
  }
  std::vector<kernels::HeadEntries> heads;
  for (const kernels::EntryRun& run : runs) heads.push_back({.runs = {&run, 1}, .n_entries = s.n_tokens});
  LayerView view{.layer = 0,
                 .n_head = s.n_head,
                 .n_kv_head = s.n_kv_head,
                 .shape = {.n_group = s.n_head / s.n_kv_head,
                           .key_dim = s.head_dim,
                           .value_dim = s.head_dim,
                           .key_type = EntryType::kF32,
                           .value_type = EntryType::kF32,
                           .spec = {.scale = 1.0F}},
                 .n_tokens = s.n_tokens,
                 .heads = heads};
  view.n_embd = s.n_embd;
  view.w_o = w_o.data();
  std::vector<std::vector<float>> norms;
  for (int h = 0; h < s.n_head; ++h) norms.push_back(projected_l2_norms(view, h));
  OracleImportance oracle(s.n_kv_head, s.n_head / s.n_kv_head, std::move(norms));
  for (std::int64_t step = 0; step < s.n_steps; ++step) {
    for (int h = 0; h < s.n_head; ++h) {
      oracle.add_step(h, std::span(attention).subspan((step * s.n_head + h) * n, n));
    }
  }
  return oracle.importance();
}

// Checks one question and adds its local kept ratios [ratios][n_layer * n_kv_head] to `profile`.
void check_question(const GoldenFile& file, const Sizes& s, int question, const std::vector<double>& ratios,
                    std::vector<double>& profile, Tally& tally) {
  const std::string prefix = std::string("q").append(std::to_string(question)).append(".");
  const std::string what = file.path() + " " + prefix;
  const int n_candidates = s.n_tokens - s.sinks - s.window;
  Curves loss, surrogate, oracle_curves;
  for (int l = 0; l < s.n_layer; ++l) {
    const std::string layer = std::string("l").append(std::to_string(l)).append(".");
    const std::vector<std::vector<double>> oracle = oracle_of(file, s, prefix + layer);
    tally.close(what + layer + "oracle", flatten(oracle), file.doubles(prefix + layer + "oracle"), kScores);
    const std::vector<float> scores =
        file.sized_floats(prefix + layer + "score", std::int64_t{s.n_tokens} * s.n_kv_head);
    Curves layer_loss, layer_surrogate;
    for (int h = 0; h < s.n_kv_head; ++h) {
      const auto candidates = std::span(oracle[h]).subspan(s.sinks, n_candidates);
      const auto ranked_by = std::span(scores).subspan(std::size_t(h) * s.n_tokens + s.sinks, n_candidates);
      layer_loss.push_back(loss_curve(candidates, ranked_by));
      layer_surrogate.push_back(convex_surrogate(layer_loss.back()));
      oracle_curves.push_back(loss_curve(candidates, std::vector<float>(candidates.begin(), candidates.end())));
    }
    tally.close(what + layer + "loss", flatten(layer_loss), file.doubles(prefix + layer + "loss"), kScores);
    tally.close(what + layer + "surrogate", flatten(layer_surrogate), file.doubles(prefix + layer + "surrogate"),
                kScores);
    loss.insert(loss.end(), layer_loss.begin(), layer_loss.end());
    surrogate.insert(surrogate.end(), layer_surrogate.begin(), layer_surrogate.end());
  }

  const auto n_heads = static_cast<std::int64_t>(loss.size());
  const std::int64_t n_protected = (std::int64_t{s.sinks} + s.window) * n_heads;
  double importance = 0;
  for (const std::vector<double>& curve : loss) importance += curve[0];
  std::map<std::string, std::vector<double>> actual;
  for (const double ratio : ratios) {
    const auto total = static_cast<std::int64_t>(
        std::floor(ratio * static_cast<double>(s.n_tokens) * static_cast<double>(n_heads) + 0.5 + 1e-6));
    actual["total"].push_back(static_cast<double>(total));
    if (total < n_protected) {
      for (const char* name :
           {"greedy_loss_surrogate", "dp_loss_surrogate", "greedy_loss_raw", "dp_loss_raw", "oracle_loss", "recall"}) {
        actual[name].push_back(-1);
      }
      actual["budget"].insert(actual["budget"].end(), n_heads, -1.0);
      actual["ratio"].insert(actual["ratio"].end(), n_heads, ratio);
      continue;
    }
    const std::vector<std::int32_t> budgets = greedy_budgets(surrogate, total - n_protected);
    for (const std::int32_t budget : budgets) {
      actual["budget"].push_back(budget + s.sinks + s.window);
      actual["ratio"].push_back(static_cast<double>(budget + s.sinks + s.window) / s.n_tokens);
    }
    actual["greedy_loss_surrogate"].push_back(loss_at(surrogate, budgets));
    actual["dp_loss_surrogate"].push_back(least_loss(surrogate, total - n_protected));
    actual["greedy_loss_raw"].push_back(loss_at(loss, budgets));
    actual["dp_loss_raw"].push_back(least_loss(loss, total - n_protected));
    actual["oracle_loss"].push_back(loss_at(oracle_curves, budgets));
    actual["recall"].push_back(1.0 - actual["greedy_loss_raw"].back() / importance);
  }
  for (const char* name : {"total", "budget"}) {
    const std::vector<std::int32_t> expected = file.int32s(prefix + name).data;
    tally.close(what + name, actual[name], std::vector<double>(expected.begin(), expected.end()), {0, 0.5, 0});
  }
  for (const char* name : {"ratio", "greedy_loss_surrogate", "dp_loss_surrogate", "greedy_loss_raw", "dp_loss_raw",
                           "oracle_loss", "recall"}) {
    tally.close(what + name, actual[name], file.doubles(prefix + name), kScores);
  }
  for (std::size_t i = 0; i < profile.size(); ++i) profile[i] += actual["ratio"][i];
}

// Checks the budgets at run time by a cut of entries without rows, scored by their position.
void check_run(const GoldenFile& file, const Sizes& s, int run, std::int32_t n_tokens, std::int64_t total,
               const std::shared_ptr<const UtilityProfile>& profile, Tally& tally) {
  const std::string prefix = std::string("run").append(std::to_string(run)).append(".");
  const std::string what = file.path() + " " + prefix;
  EvictionOptions options = EvictionOptions::parse("streaming-llm");
  options.layers = options.heads = "lu-kv";
  options.sinks = s.sinks;
  options.window = s.window;
  options.utility_profile = profile;
  Cut cut(options, {.heads = std::vector<int>(s.n_layer, s.n_kv_head), .n_tokens = n_tokens, .total = total});
  std::vector<std::int32_t> positions(n_tokens);
  std::iota(positions.begin(), positions.end(), 0);
  const kernels::EntryRun entries{
      .keys = nullptr, .values = nullptr, .positions = positions.data(), .n_entries = n_tokens};
  const std::vector<kernels::HeadEntries> heads(s.n_kv_head, {.runs = {&entries, 1}, .n_entries = n_tokens});
  for (int l = 0; l < s.n_layer && !cut.keeps_everything(); ++l) {
    cut.add_layer(
        {.layer = l, .n_head = s.n_head, .n_kv_head = s.n_kv_head, .shape = {}, .n_tokens = n_tokens, .heads = heads},
        serial());
  }
  std::vector<double> share = flatten(cut.report().head_share);
  for (double& x : share) x += s.sinks + s.window;  // the file's shares count the protected entries
  std::vector<double> budget;
  for (const auto& layer : cut.report().budget) budget.insert(budget.end(), layer.begin(), layer.end());
  if (!cut.keeps_everything()) tally.close(what + "share", share, file.doubles(prefix + "share"), kScores);
  if (file.has(prefix + "round_margin") && file.doubles(prefix + "round_margin").at(0) < kRoundMargin) {
    return tally.skip_margin();
  }
  const std::vector<std::int32_t> expected = file.int32s(prefix + "budget").data;
  tally.close(what + "budget", budget, std::vector<double>(expected.begin(), expected.end()), {0, 0.5, 0});
}

}  // namespace

void check_lukv(const std::string& path, Tally& tally) {
  const GoldenFile file(path);
  const Sizes s = read_sizes(file);
  const std::vector<double> ratios = file.doubles("ratios");
  std::vector<double> profile(ratios.size() * s.n_layer * s.n_kv_head, 0.0);
  const std::int64_t n_questions = file.integer("winnow.n_questions");
  for (int q = 0; q < n_questions; ++q) check_question(file, s, q, ratios, profile, tally);
  for (double& ratio : profile) ratio /= static_cast<double>(n_questions);
  tally.close(file.path() + " profile", profile, file.doubles("profile"), kScores);

  auto at_run_time = std::make_shared<UtilityProfile>();
  at_run_time->heads.assign(s.n_layer, s.n_kv_head);
  at_run_time->kept = file.doubles("profile99");
  for (int i = 1; i < 100; ++i) at_run_time->ratios.push_back(i / 100.0);
  const Tensor<std::int32_t> runs = file.int32s("run.n_and_total");
  for (std::size_t run = 0; 2 * run + 1 < runs.data.size(); ++run) {
    check_run(file, s, static_cast<int>(run), runs.data[2 * run], runs.data[2 * run + 1], at_run_time, tally);
  }
}

}  // namespace winnow::golden
