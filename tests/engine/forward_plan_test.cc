// The batches of a forward pass: each row goes through each of its layers once, after the rows that it follows.
#include "engine/forward_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace winnow {
namespace {

ModelSpec model_of(int n_layer, int first_shared_layer) {
  ModelSpec spec;
  spec.layers.resize(static_cast<std::size_t>(n_layer));
  for (int l = first_shared_layer; l < n_layer; ++l) {
    spec.layers[static_cast<std::size_t>(l)].kind = LayerKind::kSharedAttention;
  }
  return spec;
}

// Follows a schedule as the pass does. Fails unless every batch begins with
// the row after the last one of its part in that layer, and has been through the layer before. Returns the number of
// rows that each layer had when it ended.
std::vector<std::int64_t> follow(const RowSchedule& schedule, const ForwardPlan& plan) {
  std::vector<std::int64_t> rows_at_end(static_cast<std::size_t>(plan.layers.last), -1);
  std::map<int, std::int64_t> n_through;               // of each layer
  std::map<std::pair<int, std::int32_t>, int> passed;  // number of times that a row went through a layer
  for (const RowSchedule::Visit& visit : schedule.visits()) {
    const int l = visit.layer;
    for (const RowSchedule::Batch& batch : visit.batches) {
      EXPECT_LE(batch.rows.n_rows, plan.n_batch);
      for (std::int32_t r = batch.rows.first_row; r < batch.rows.first_row + batch.rows.n_rows; ++r) {
        EXPECT_EQ(passed[std::pair(l, r)]++, 0) << "layer " << l << ", row " << r;
        const bool begins = batch.is_late && l == plan.repeat->first_layer;
        const bool is_due = l == plan.layers.first || begins || passed[std::pair(l - 1, r)] == 1;
        EXPECT_TRUE(is_due) << "layer " << l << ", row " << r;
      }
      n_through[l] += batch.rows.n_rows;
    }
    if (!visit.ends_layer) continue;
    EXPECT_EQ(rows_at_end[static_cast<std::size_t>(l)], -1) << "layer " << l << " ends twice";
    rows_at_end[static_cast<std::size_t>(l)] = n_through[l];
  }
  return rows_at_end;
}

TEST(RowScheduleTest, EveryRowGoesThroughEachOfItsLayersOnce) {
  std::mt19937 random(7);
  const auto up_to = [&](int most) { return static_cast<int>(random() % static_cast<unsigned>(most + 1)); };
  for (int round = 0; round < 500; ++round) {
    const int n_layer = 2 + up_to(5), first_shared = n_layer - up_to(1);
    const ModelSpec spec = model_of(n_layer, first_shared);
    const std::vector<Token> tokens(static_cast<std::size_t>(1 + up_to(40)));
    std::vector<std::vector<Token>> suffixes(static_cast<std::size_t>(up_to(2)));
    std::int64_t n_early = static_cast<std::int64_t>(tokens.size());
    for (std::vector<Token>& suffix : suffixes) {
      suffix.resize(static_cast<std::size_t>(1 + up_to(20)));
      n_early += static_cast<std::int64_t>(suffix.size());
    }
    ForwardPlan plan{.layers = spec.all_layers(), .tokens = tokens, .first_position = up_to(9), .suffixes = suffixes};
    if (up_to(1) > 0) plan.repeat = LateRepeat{.first_layer = up_to(first_shared - 1), .n_part = 1 + up_to(30)};
    plan.n_batch = 1 + up_to(16);
    plan.n_together = up_to(2) == 0 ? n_layer : 1;
    plan.is_awaited = up_to(1) > 0;
    const RowSchedule schedule(plan, spec, up_to(1) > 0);
    const std::vector<std::int64_t> ended = follow(schedule, plan);
    std::int64_t work = 0;
    for (int l = 0; l < n_layer; ++l) {
      const bool has_repeat = plan.repeat && l >= plan.repeat->first_layer;
      const auto n_tokens = static_cast<std::int64_t>(tokens.size());
      const std::int64_t expected = l >= first_shared ? n_tokens : n_early + (has_repeat ? n_tokens : 0);
      EXPECT_EQ(ended[static_cast<std::size_t>(l)], expected) << "round " << round << ", layer " << l;
      work += expected;
    }
    EXPECT_EQ(schedule.work_total(), work);
    EXPECT_EQ(schedule.has_suffixes(), !suffixes.empty() || plan.repeat.has_value());
    if (HasFailure()) return;
  }
}

TEST(RowScheduleTest, PartsBeginAtThePositionsAfterThePrompt) {
  const ModelSpec spec = model_of(2, 2);
  const std::vector<Token> tokens(10);
  const std::vector<std::vector<Token>> suffixes = {std::vector<Token>(3), std::vector<Token>(5)};
  const ForwardPlan plan{.layers = spec.all_layers(),
                         .tokens = tokens,
                         .first_position = 100,
                         .suffixes = suffixes,
                         .repeat = LateRepeat{.first_layer = 1, .n_part = 7, .n_near = 2},
                         .n_batch = 4};
  const RowSchedule schedule(plan, spec, false);
  struct Expected {
    std::int32_t first_row, n_rows, first_position;
    bool begins_part, is_late;
  };
  constexpr Expected kExpected[] = {{0, 4, 100, true, false},  {4, 4, 104, false, false}, {8, 2, 108, false, false},
                                    {10, 3, 110, true, false}, {13, 4, 110, true, false}, {17, 1, 114, false, false},
                                    {18, 4, 110, true, true},  {22, 3, 114, false, true}, {25, 3, 110, true, true}};
  const auto visits = schedule.visits();
  ASSERT_EQ(visits.size(), 2U);
  EXPECT_EQ(visits[0].batches.size(), 6U);  // the late repeat begins at layer 1
  const auto batches = visits[1].batches;
  ASSERT_EQ(batches.size(), std::size(kExpected));
  for (std::size_t i = 0; i < batches.size(); ++i) {
    EXPECT_EQ(batches[i].rows.first_row, kExpected[i].first_row) << i;
    EXPECT_EQ(batches[i].rows.n_rows, kExpected[i].n_rows) << i;
    EXPECT_EQ(batches[i].rows.first_position, kExpected[i].first_position) << i;
    EXPECT_EQ(batches[i].begins_part, kExpected[i].begins_part) << i;
    EXPECT_EQ(batches[i].is_late, kExpected[i].is_late) << i;
    EXPECT_EQ(schedule.begun_part(batches[i]).has_value(), i == 6 || i == 8) << i;
  }
  const auto numbers = [](const std::optional<RepeatedPart>& part) {
    return std::vector{part.value().first, part->end, part->near_first, part->near_end};
  };
  EXPECT_EQ(numbers(schedule.begun_part(batches[6])), (std::vector{100, 107, 100, 109}));
  EXPECT_EQ(numbers(schedule.begun_part(batches[8])), (std::vector{107, 110, 105, 110}));
  EXPECT_FALSE(schedule.suffixes()[1].repeated);
  EXPECT_EQ(numbers(schedule.suffixes()[3].repeated), (std::vector{107, 110, 105, 110}));
  EXPECT_EQ(schedule.first_repeated(), 18);
  EXPECT_EQ(plan.n_rows(), 28);
}

TEST(RowScheduleTest, OfTheLastLayerOnlyWhatSomebodyReads) {
  const ModelSpec spec = model_of(2, 2);
  const std::vector<Token> tokens(10);
  const std::vector<std::vector<Token>> suffixes = {std::vector<Token>(3)};
  ForwardPlan plan{.layers = spec.all_layers(), .tokens = tokens, .suffixes = suffixes, .n_batch = 4};
  plan.reads_all_rows = false;
  const RowSchedule last(plan, spec, false);
  ASSERT_EQ(last.visits().size(), 2U);
  EXPECT_EQ(last.visits()[0].read.size(), 4U);
  ASSERT_EQ(last.visits()[1].read.size(), 1U);
  EXPECT_EQ(last.visits()[1].read[0].rows.first_row, 8);
  plan.reads_all_rows = true;
  const RowSchedule all(plan, spec, false);
  EXPECT_EQ(all.visits()[1].read.size(), 3U);
}

TEST(RowScheduleTest, AwaitedRowsGoThroughTheLayersSweepBySweep) {
  const ModelSpec spec = model_of(2, 2);
  const std::vector<Token> tokens(10);
  const std::vector<std::vector<Token>> suffixes = {std::vector<Token>(3)};
  ForwardPlan plan{.layers = spec.all_layers(), .tokens = tokens, .suffixes = suffixes, .n_batch = 2, .n_together = 2};
  plan.is_awaited = true;
  const auto order = [&](bool waits_for_weights) {
    const RowSchedule schedule(plan, spec, waits_for_weights);
    std::string text;
    for (const RowSchedule::Visit& visit : schedule.visits()) {
      text += visit.begins_sweep ? " |" : " ";
      text += std::to_string(visit.layer) + "x" + std::to_string(visit.batches.size());
      if (visit.ends_layer) text += "!";
    }
    return text;
  };
  EXPECT_EQ(order(true), " |0x4 1x4 |0x1 1x1 |0x2! 1x2!");
  EXPECT_EQ(order(false), " |0x1 1x1 |0x1 1x1 |0x1 1x1 |0x1 1x1 |0x1 1x1 |0x2! 1x2!");
  plan.n_together = 1;
  EXPECT_EQ(order(true), " |0x7! 1x7!");
}

}  // namespace
}  // namespace winnow
