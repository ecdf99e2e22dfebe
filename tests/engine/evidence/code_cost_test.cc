#include "engine/evidence/code_cost.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/engine_test_support.h"
#include "winnow/observe.h"

namespace winnow::test {
namespace {

// Returns the costs of all heads [layer * 2 + head] of a model of two layers, where the second one's keys are `gain`
// times as large.
std::vector<CodeCost> costs(float gain, EntryType key_type, EntryType value_type, int n_tokens = 600) {
  TinyModelOptions options{.n_layer = 2, .n_head = 6, .n_kv_head = 2, .head_dim = 64, .seed = 3};
  options.gain_of = [gain](const std::string& name) { return name == "blk.1.attn_k.weight" ? gain : 1.0F; };
  const auto engine = Engine::create(tiny_model(options), {.n_threads = 2});
  Session session = engine->open(full_options());
  EvidenceNeeds needs;
  needs.reference_rows = true;
  std::vector<CodeCost> all;
  prefill_observed(session, random_tokens(n_tokens, 300, 5),
                   {.needs = needs, .on_layer = [&](const LayerView& view, const ParallelFor& parallel_for) {
                      for (const CodeCost& cost : code_costs(view, key_type, value_type, {}, parallel_for)) {
                        all.push_back(cost);
                      }
                    }});
  return all;
}

TEST(CodeCosts, GrowAsAttentionGetsSharper) {
  const std::vector<CodeCost> mild = costs(1, EntryType::kR4, EntryType::kR4),
                              sharp = costs(12, EntryType::kR4, EntryType::kR4);
  ASSERT_EQ(mild.size(), 4U);
  ASSERT_EQ(sharp.size(), 4U);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_FALSE(mild[i].is_too_much()) << i;
    EXPECT_GT(mild[i].keys, 0) << i;
    EXPECT_EQ(sharp[i].is_too_much(), i >= 2) << i << ": " << sharp[i].keys;
  }
  EXPECT_GT(sharp[2].keys, 5 * mild[2].keys);
}

// Lloyd-Max's errors for normal numbers are .0095 of their squares in 4 bits, .0345 in 3, and little in 8.
TEST(CodeCosts, OfValuesAreThoseOfTheirBits) {
  for (const auto& [type, expected] : {std::pair{EntryType::kR4, 0.0095}, {EntryType::kR3, 0.0345}}) {
    for (const CodeCost& cost : costs(1, type, type)) EXPECT_NEAR(cost.values, expected, 0.3 * expected);
  }
  for (const CodeCost& cost : costs(12, EntryType::kQ8_0, EntryType::kQ8_0)) {
    EXPECT_LT(cost.values, 1e-3);
    EXPECT_FALSE(cost.is_too_much());
  }
  for (const CodeCost& cost : costs(12, EntryType::kF16, EntryType::kF16)) {
    EXPECT_LT(cost.keys, 1e-4);
    EXPECT_LT(cost.values, 1e-6);
  }
}

TEST(CodeCosts, AreNothingWhereNothingIsCoded) {
  for (const CodeCost& cost : costs(12, EntryType::kR4, EntryType::kR4, 4)) {
    EXPECT_EQ(cost.keys, 0);
    EXPECT_EQ(cost.values, 0);
  }
}

// A full cache in codes reports what they cost its first prompt, and where. One in f16, or of a method, does not.
TEST(CodeLoss, IsToldOfAFullCacheInCodes) {
  TinyModelOptions model{.n_layer = 2, .n_head = 6, .n_kv_head = 2, .head_dim = 64, .seed = 3};
  model.gain_of = [](const std::string& name) { return name == "blk.1.attn_k.weight" ? 12.0F : 1.0F; };
  const auto engine = Engine::create(tiny_model(model), {.n_threads = 2});
  const std::vector<Token> prompt = random_tokens(600, 300, 5);
  const auto loss_of = [&](SessionOptions options, EntryType key_type, EntryType value_type) {
    options.key_type = key_type;
    options.value_type = value_type;
    Session session = engine->open(options);
    session.prefill(prompt);
    session.decode(7);
    return session.statistics().code_loss;
  };
  const auto coarse = loss_of(full_options(), EntryType::kR4, EntryType::kR4);
  ASSERT_TRUE(coarse);
  EXPECT_EQ(coarse->n_heads, 4);
  EXPECT_EQ(coarse->n_too_much, 2);  // the heads of the second layer
  EXPECT_EQ(coarse->layer, 1);
  EXPECT_GT(coarse->most_keys, CodeCost::kMostKeys);
  EXPECT_GT(coarse->most_keys, coarse->mean_keys);
  EXPECT_NEAR(coarse->most_values, 0.0095, 0.004);
  const auto fine = loss_of(full_options(), EntryType::kQ8_0, EntryType::kQ8_0);
  ASSERT_TRUE(fine);
  EXPECT_EQ(fine->n_too_much, 0);
  EXPECT_LT(fine->mean_keys, coarse->mean_keys / 20);
  EXPECT_FALSE(loss_of(full_options(), EntryType::kF16, EntryType::kF16));
  EXPECT_FALSE(loss_of(evicting_options("snapkv:window=8", "20%"), EntryType::kR4, EntryType::kR4));
}

}  // namespace
}  // namespace winnow::test
