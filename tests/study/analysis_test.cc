#include "study/analysis/analysis.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>

#include "engine/count_raised.h"
#include "study/analysis/analysis_text.h"
#include "study/analysis/future_loss.h"
#include "study/tiny_prompt.h"
#include "winnow/error.h"

namespace winnow {
namespace {

using test::tiny_engine;
using test::tiny_tokens;

AnalysisOptions options_of(const std::vector<const char*>& methods, const std::vector<const char*>& budgets, int n,
                           std::uint32_t seed) {
  AnalysisOptions options;
  options.context = tiny_tokens(n, seed);
  options.continuation = tiny_tokens(12, seed + 1);
  for (const char* method : methods) {
    for (const char* budget : budgets) {
      options.cuts.push_back({EvictionOptions::parse(method), Budget::parse(budget)});
    }
  }
  return options;
}

const std::vector<const char*> kMethods = {"streaming-llm:window=4",
                                           "snapkv:window=8",
                                           "ada-snapkv:window=8,sinks=2",
                                           "critical-snapkv:window=8",
                                           "critical-ada-snapkv:window=4,first-stage=0.25",
                                           "h2o:window=4",
                                           "tova:window=2",
                                           "keydiff:window=4",
                                           "expected-attention:window=4",
                                           "random:window=4,seed=3",
                                           "cake:window=8",
                                           "lava:window=8",
                                           "kvzip:window=4"};

// One layer attends so sharply that codes of few bits would change its attention, so its heads are raised.
TEST(Analysis, TellsOfHeadsThatAreRaised) {
  const auto engine = tiny_engine({.head_dim = 32, .gain_of = [](const std::string& name) {
                                     return name == "blk.1.attn_k.weight" ? 10.0F : 1.0F;
                                   }});
  const Analysis analysis = analyse(engine, options_of({"auto-fast", "auto-fast:bits=own"}, {"10%"}, 600, 4));
  ASSERT_EQ(analysis.cuts.size(), 2U);
  EXPECT_GT(count_raised(analysis.cuts[0].raised), 0);
  EXPECT_EQ(count_raised(analysis.cuts[1].raised), 0);
  const nlohmann::json json = analysis_json(analysis);
  EXPECT_EQ(json["cuts"][0]["raised"].get<std::vector<std::vector<bool>>>(), analysis.cuts[0].raised);
  EXPECT_FALSE(json["cuts"][1].contains("raised"));
}

TEST(Analysis, EveryLossIsBelowItsBoundsAndEveryPartAddsUp) {
  for (std::uint32_t seed = 1; seed <= 3; ++seed) {
    const auto engine = tiny_engine({.n_layer = 4, .seed = seed});
    AnalysisOptions options = options_of(kMethods, {"12%", "35%", "80%"}, 120, seed * 10);
    if (seed == 2) options.question = tiny_tokens(5, 77);
    if (seed == 3) options.continuation.clear();
    if (seed == 3) options.n_answer = 9;
    const Analysis analysis = analyse(engine, options);
    EXPECT_EQ(find_violations(analysis), std::vector<std::string>{});
    ASSERT_EQ(analysis.cuts.size(), kMethods.size() * 3);
    for (std::size_t c = 0; c < analysis.cuts.size(); ++c) {
      const CutOutcome& cut = analysis.cuts[c];
      SCOPED_TRACE(cut.method + " " + cut.budget);
      std::int64_t n_kept = 0;
      double importance = 0, loss = 0;
      for (std::size_t l = 0; l < 4; ++l) {
        const LayerOutcome& layer = cut.layers[l];
        for (std::size_t h = 0; h < 2; ++h) {
          n_kept += layer.kept[h];
          EXPECT_EQ(std::ssize(analysis.positions[c][l][h]), layer.kept[h]);
          importance += analysis.layers[l].importance[h];
          loss += layer.loss[h];
          EXPECT_LE(layer.least_loss[h], layer.loss[h] + 1e-12);
          EXPECT_GE(layer.recall[h], 0);
          EXPECT_LE(layer.recall[h], 1);
          EXPECT_GT(layer.future_mass[h], 0);
          EXPECT_LE(layer.future_mass[h], 1 + 1e-9);
          EXPECT_GT(layer.output_error[h], 0);
        }
        for (const double mass : layer.losses.mass) {
          EXPECT_GT(mass, 0);
          EXPECT_LE(mass, 1 + 1e-9);
        }
        EXPECT_EQ(layer.losses.theta_hat.empty(), cut.method.find("critical") == std::string::npos);
      }
      EXPECT_EQ(n_kept, cut.entries_kept);
      EXPECT_EQ(cut.entries_full, 120 * 8);
      EXPECT_NEAR(cut.oracle_loss, loss / importance, 1e-12);
      EXPECT_LE(cut.best_loss, cut.least_loss + 1e-12);
      EXPECT_LE(cut.least_loss, cut.oracle_loss + 1e-12);
      EXPECT_LE(cut.best_loss, cut.best_allocation + 1e-9);
      // Critical methods do not select by the scorer's ranking.
      if (cut.method.find("critical") == std::string::npos) {
        EXPECT_LE(cut.best_allocation, cut.oracle_loss + 1e-9);
      }
      EXPECT_GT(cut.output_error, 0);
      EXPECT_EQ(cut.bytes_kept * 120 * 8, analysis.bytes_full * static_cast<std::uint64_t>(n_kept));  // all in f16
      EXPECT_GT(cut.next.kl_mean, 0);
      EXPECT_GE(cut.next.kl_max, cut.next.kl_mean);
      EXPECT_GT(cut.next.perplexity_full, 1);
    }
    EXPECT_EQ(analysis.is_answer, seed == 3);
  }
}

TEST(Analysis, ABudgetForEverythingLosesNothing) {
  const Analysis analysis = analyse(tiny_engine(), options_of({"snapkv:window=8", "lava:window=8"}, {"100%"}, 60, 5));
  for (const CutOutcome& cut : analysis.cuts) {
    EXPECT_EQ(cut.entries_kept, cut.entries_full);
    EXPECT_EQ(cut.next.kl_max, 0);
    EXPECT_EQ(cut.next.perplexity, cut.next.perplexity_full);
    EXPECT_EQ(cut.next.agreement, 1);
    EXPECT_EQ(cut.next.first_logits_l1, 0);
    EXPECT_EQ(cut.oracle_loss, 0);
    EXPECT_EQ(cut.best_loss, 0);
    EXPECT_EQ(cut.output_error, 0);
    EXPECT_EQ(cut.bytes_kept, analysis.bytes_full);
    for (const LayerOutcome& layer : cut.layers) {
      EXPECT_EQ(layer.losses.loss_layer, 0);
      EXPECT_EQ(layer.recall, (std::vector<double>{1, 1}));
      EXPECT_NEAR(layer.future_mass[0], 1, 1e-12);
    }
  }
  EXPECT_TRUE(find_violations(analysis).empty());
}

// The output error is that of the entries as they are stored, not of the same entries in f16.
TEST(Analysis, TheOutputIsOfWhatIsStored) {
  const Analysis analysis =
      analyse(tiny_engine(), options_of({"auto-fast:window=4,bits=4", "auto-fast:window=4,bits=4,fit=none",
                                         "auto-fast:window=4,bits=own,fit=none"},
                                        {"40%", "100%"}, 120, 3));
  std::map<std::pair<std::string, std::string>, const CutOutcome*> cuts;
  for (const CutOutcome& cut : analysis.cuts) cuts[{cut.method, cut.budget}] = &cut;
  ASSERT_EQ(cuts.size(), 6U);
  const auto of = [&](const char* method, const char* budget) -> const CutOutcome& {
    return *cuts.at({EvictionOptions::parse(method).text(), budget});
  };
  const CutOutcome& fitted = of("auto-fast:window=4,bits=4", "40%");
  const CutOutcome& coded = of("auto-fast:window=4,bits=4,fit=none", "40%");
  const CutOutcome& plain = of("auto-fast:window=4,bits=own,fit=none", "40%");
  EXPECT_EQ(fitted.entries_kept, plain.entries_kept);
  EXPECT_LT(fitted.bytes_kept, plain.bytes_kept);
  EXPECT_LT(fitted.output_error, coded.output_error);
  EXPECT_EQ(fitted.oracle_loss, coded.oracle_loss);  // the same entries
  // A budget for all entries keeps them unchanged.
  EXPECT_EQ(of("auto-fast:window=4,bits=own,fit=none", "100%").output_error, 0);
}

TEST(Analysis, BytesHoldTheMostImportantOfEveryByte) {
  const LayerInfo layer{.kind = LayerKind::kFullAttention,
                        .n_head = 1,
                        .n_kv_head = 1,
                        .key_dim = 32,
                        .value_dim = 32,
                        .n_ff = 0,
                        .sliding_window = 0};
  // An entry takes 132 bytes in f16, 72 in q8_0 and 40 in r4; four of them 528 in f16.
  const std::vector<std::vector<double>> one{{3, 1, 4, 2}};
  const std::vector<const LayerInfo*> wide_layers{&layer};
  const LossByBytes losses = loss_by_bytes(one, wide_layers);
  const LossByBytes expected{{{1, 1, 1, 1, 1, 0.3}, {1, 1, 1, 1, 0.6, 0.1}, {1, 1, 1, 0.6, 0.3, 0}}};
  for (std::size_t t = 0; t < kByteTypes.size(); ++t) {
    for (std::size_t s = 0; s < kByteShares.size(); ++s) {
      EXPECT_NEAR(losses[t][s], expected[t][s], 1e-12) << entry_type_name(kByteTypes[t]) << " " << kByteShares[s];
    }
  }
  // Entries of 132 bytes with three quarters of the importance come before entries of 260 bytes.
  LayerInfo wider = layer;
  wider.key_dim = wider.value_dim = 64;
  const std::vector<std::vector<double>> both{{4, 4}, {3, 3}};
  const std::vector<const LayerInfo*> layers{&wider, &layer};
  EXPECT_NEAR(loss_by_bytes(both, layers)[0][5], 8.0 / 14, 1e-12);  // 264 of 392 bytes
  // q8_0 does not support this size.
  LayerInfo narrow = layer;
  narrow.key_dim = 48;
  const std::vector<const LayerInfo*> narrow_layers{&narrow};
  const LossByBytes some = loss_by_bytes(one, narrow_layers);
  EXPECT_TRUE(std::isnan(some[1][5]));
  EXPECT_LT(some[2][5], some[0][5]);
}

TEST(Analysis, EveryPlantedViolationIsFound) {
  const Analysis sound = analyse(tiny_engine(), options_of({"critical-snapkv:window=8"}, {"20%"}, 80, 9));
  ASSERT_TRUE(find_violations(sound).empty());
  const auto found = [&](const std::function<void(LayerLosses&)>& plant) {
    Analysis planted = sound;
    plant(planted.cuts[0].layers[1].losses);
    return find_violations(planted).size();
  };
  EXPECT_EQ(found([](LayerLosses& l) { l.ada_eps = l.loss_layer * 0.999; }), 1U);
  EXPECT_EQ(found([](LayerLosses& l) { l.lava_bound = l.loss_layer * 0.999; }), 1U);
  EXPECT_EQ(found([](LayerLosses& l) { l.theta[2] = l.loss_head[2] * 0.999; }), 1U);
  EXPECT_EQ(found([](LayerLosses& l) { l.theta_hat[3] = l.loss_head[3] * 0.999; }), 2U);  // below theta as well
  EXPECT_EQ(found([](LayerLosses& l) { l.theta_hat[0] = l.theta[0] * 0.999; }), 1U);
  EXPECT_EQ(found([](LayerLosses& l) { l.loss_head[1] = std::nan(""); }), 2U);
}

// The entries that a head keeps for certain are those of the window that its cut has, which small budgets make shorter.
TEST(Analysis, BoundsHoldWhereTheWindowIsNarrowed) {
  const Analysis analysis =
      analyse(tiny_engine(), options_of({"critical-ada-snapkv", "critical-snapkv:window=16"}, {"10%", "20%"}, 120, 9));
  EXPECT_TRUE(find_violations(analysis).empty());
}

// One layer's view shows one way of repeating the prompt; late rows lack what kvzip+ divides by.
TEST(Analysis, MethodsMayRepeatThePromptInDifferentWays) {
  const Analysis both = analyse(tiny_engine(), options_of({"kvzip+:window=4", "auto:repeat=late"}, {"30%"}, 120, 9));
  const Analysis alone = analyse(tiny_engine(), options_of({"kvzip+:window=4"}, {"30%"}, 120, 9));
  EXPECT_EQ(both.cuts[0].layers[1].losses.theta, alone.cuts[0].layers[1].losses.theta);
}

TEST(Analysis, TextHasEveryRow) {
  const Analysis analysis = analyse(
      tiny_engine(), options_of({"snapkv:window=8,pool=none", "critical-snapkv:window=8"}, {"20%", "30"}, 80, 4));
  const nlohmann::ordered_json json = analysis_json(analysis);
  ASSERT_EQ(json["cuts"].size(), 4U);
  ASSERT_EQ(json["attention"].size(), 3U);
  EXPECT_EQ(json["violations"].size(), 0U);
  EXPECT_TRUE(json["cuts"][0]["layers"][0]["theta_hat"].is_null());
  EXPECT_EQ(json["cuts"][2]["layers"][0]["theta_hat"].size(), 4U);
  EXPECT_EQ(json["by_bytes"]["q8_0"].size(), json["byte_shares"].size());
  EXPECT_EQ(json["attention"][0]["by_bytes"].size(), 2U);
  EXPECT_EQ(json["cuts"][1]["layers"][2]["output_error"].size(), 2U);
  EXPECT_NEAR(json["cuts"][3]["next"]["kl_mean"].get<double>(), analysis.cuts[3].next.kl_mean, 1e-6);
  for (const auto& head : json["attention"][1]["concentration"]) {
    double before = 0;
    for (const double part : head) {
      EXPECT_GE(part, before);
      EXPECT_LE(part, 1);
      before = part;
    }
  }
  std::istringstream lines(analysis_csv(analysis));
  std::string line;
  int n_lines = 0;
  while (std::getline(lines, line)) {
    // The method with a comma is quoted.
    const auto in_quotes = line.starts_with("\"snapkv:window=8,pool=none\",") ? 1 : 0;
    EXPECT_EQ(std::count(line.begin(), line.end(), ','), 20 + in_quotes) << line;
    ++n_lines;
  }
  EXPECT_EQ(n_lines, 1 + 4 * 3 * 4);
}

TEST(Analysis, WhatCannotBeJudgedIsRefused) {
  const auto engine = tiny_engine();
  const auto code = [&](const AnalysisOptions& options) {
    try {
      analyse(engine, options);
    } catch (const Error& error) {
      return error.code();
    }
    return ErrorCode::kInternal;
  };
  EXPECT_EQ(code(options_of({"full"}, {"20%"}, 80, 1)), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(options_of({"snapkv"}, {"20%"}, 20, 1)), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(options_of({"snapkv"}, {"1%"}, 80, 1)), ErrorCode::kInvalidArgument) << "below the window";
  AnalysisOptions options = options_of({"snapkv:window=4"}, {"20%"}, 80, 1);
  options.on_progress = [](double part) { return part < 0.5; };
  EXPECT_EQ(code(options), ErrorCode::kCancelled);
  options.on_progress = nullptr;
  options.continuation.resize(1);
  EXPECT_EQ(code(options), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace winnow
