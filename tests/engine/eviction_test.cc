// Properties of every eviction method in a session, over random shapes and lengths.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "engine/engine_test_support.h"
#include "expect_error.h"

namespace winnow::test {
namespace {

TEST(MethodsTest, TheEngineTakesThePresets) {
  const std::vector<std::string> methods = session_methods();
  for (const char* name : {"streaming-llm", "tova", "snapkv", "pyramidkv", "ada-snapkv", "lava", "random"}) {
    EXPECT_NE(std::find(methods.begin(), methods.end(), name), methods.end()) << name;
  }
}

class EvictionTest : public testing::TestWithParam<std::string> {
 protected:
  // Returns the preset with a window that leaves a choice in short prompts.
  static std::string method(int window = 8) { return GetParam() + ":window=" + std::to_string(window); }
};

TEST_P(EvictionTest, BudgetsAreExact) {
  std::mt19937 random(11);
  for (int round = 0; round < 6; ++round) {
    const int n_kv_head = 1 + static_cast<int>(random() % 3);
    const TinyModelOptions shape{.n_layer = 1 + static_cast<int>(random() % 4),
                                 .n_head = n_kv_head * (1 + static_cast<int>(random() % 3)),
                                 .n_kv_head = n_kv_head,
                                 .head_dim = 16,
                                 .seed = static_cast<std::uint32_t>(round)};
    const auto engine = Engine::create(tiny_model(shape), {.n_threads = 2, .n_batch = 64});
    for (const char* budget : {"48", "37%", "61%"}) {
      const int n_tokens = 100 + static_cast<int>(random() % 130);
      Session session = engine->open(evicting_options(method(), budget));
      session.prefill(random_tokens(n_tokens, 300, static_cast<std::uint32_t>(round)));
      const std::int64_t n_heads = std::int64_t{shape.n_layer} * shape.n_kv_head;
      const std::int64_t total = Budget::parse(budget).total_entries(n_tokens, n_heads, {.stored = 1, .f16_rows = 1});
      const SessionStatistics statistics = session.statistics();
      EXPECT_LT(total, n_tokens * n_heads);
      EXPECT_EQ(statistics.entries_kept, total) << GetParam() << " " << budget << " of " << n_tokens;
      EXPECT_EQ(statistics.entries_full, n_tokens * n_heads);
      std::int64_t sum = 0;
      for (const std::vector<std::int32_t>& positions : kept_positions(session)) {
        sum += static_cast<std::int64_t>(positions.size());
        ASSERT_FALSE(positions.empty());
        EXPECT_TRUE(std::is_sorted(positions.begin(), positions.end()));
        EXPECT_EQ(std::adjacent_find(positions.begin(), positions.end()), positions.end());
        EXPECT_GE(positions.front(), 0);
        EXPECT_EQ(positions.back(), n_tokens - 1);
      }
      EXPECT_EQ(sum, total);
    }
  }
}

TEST_P(EvictionTest, ABudgetOfThePromptOrMoreChangesNothing) {
  const auto engine = Engine::create(tiny_model(), {.n_threads = 2, .n_batch = 32});
  const std::vector<Token> prompt = random_tokens(90, 300, 1);
  const std::vector<Token> later = random_tokens(12, 300, 2);
  Session full = engine->open(full_options());
  full.prefill(prompt);
  const std::vector<float> expected = logits_of(full);
  const auto expected_later = decode_all(full, later);
  for (const char* budget : {"90", "5000", "100%"}) {
    Session session = engine->open(evicting_options(GetParam(), budget));
    session.prefill(prompt);
    EXPECT_EQ(logits_of(session), expected);
    EXPECT_EQ(session.statistics().entries_kept, 90 * 3 * 2);
    EXPECT_EQ(decode_all(session, later), expected_later);
    EXPECT_EQ(session.statistics().entries_kept, 102 * 3 * 2);
  }
}

// Returns true if the method scores by a pass that repeats the prompt, or by rows spread over it.
bool scores_prompts_only(const std::string& method) {
  return method.starts_with("kvzip") || method.starts_with("auto");
}

// With cuts while decoding, the prompt's own length is no budget.
TEST_P(EvictionTest, CutsWhileDecodingLeaveASequenceWithinItsBudgetWhole) {
  const auto engine = Engine::create(tiny_model(), {.n_threads = 1});
  SessionOptions options = evicting_options(GetParam(), "64");
  for (const auto cut : {SessionOptions::DecodeCut::kTotal, SessionOptions::DecodeCut::kOwn}) {
    options.decode_cut = cut;
    if (scores_prompts_only(GetParam())) {
      expect_error(ErrorCode::kUnsupported, [&] { engine->open(options); });
      continue;
    }
    Session session = engine->open(options);
    session.prefill(random_tokens(40, 300, 1));
    EXPECT_EQ(session.statistics().entries_kept, 40 * 6);
    decode_all(session, random_tokens(5, 300, 2));
    EXPECT_EQ(session.statistics().entries_kept, 45 * 6) << static_cast<int>(cut);
  }
}

TEST_P(EvictionTest, CutsWhileDecodingReturnToTheBudget) {
  if (scores_prompts_only(GetParam())) return;  // refused: see above
  const auto engine = Engine::create(tiny_model(), {.n_threads = 1});
  for (const int n_prompt : {100, 30}) {  // beyond the budget and within it
    SessionOptions options = evicting_options(method(), "40");
    options.decode_cut = SessionOptions::DecodeCut::kTotal;
    options.cut_every = 4;
    Session session = engine->open(options);
    session.prefill(random_tokens(n_prompt, 300, 1));
    std::int64_t expected = std::min(n_prompt, 40);
    const std::vector<Token> later = random_tokens(18, 300, 2);
    for (std::size_t i = 0; i < later.size(); ++i) {
      session.decode(later[i]);
      ++expected;
      if ((i + 1) % 4 == 0) expected = std::min<std::int64_t>(expected, 40);
      ASSERT_EQ(session.statistics().entries_kept, expected * 6) << n_prompt << " + " << i + 1;
    }
  }
}

TEST(CutsWhileDecoding, ScoreH2oByTheWindowsRows) {
  const auto engine = Engine::create(tiny_model(), {.n_threads = 1});
  const auto kept = [&](const char* method) {
    SessionOptions options = evicting_options(method, "40");
    options.decode_cut = SessionOptions::DecodeCut::kTotal;
    options.cut_every = 2;
    Session session = engine->open(options);
    session.prefill(random_tokens(38, 300, 1));
    decode_all(session, random_tokens(20, 300, 2));
    return kept_positions(session);
  };
  EXPECT_EQ(kept("h2o:window=8"), kept("h2o:window=8,last-rows=8"));
  EXPECT_NE(kept("h2o:window=8"), kept("h2o:window=8,last-rows=2"));
  EXPECT_EQ(kept("h2o:window=0"), kept("h2o:window=0,last-rows=2"));
}

TEST_P(EvictionTest, BatchSizeDoesNotMatter) {
  const auto model = tiny_model({.seed = 3});
  const std::vector<Token> prompt = random_tokens(173, 300, 3);
  std::vector<float> expected;
  HeadPositions expected_positions;
  std::vector<float> expected_next;
  for (const int n_batch : {512, 64, 33, 7}) {
    const auto engine = Engine::create(model, {.n_threads = 2, .n_batch = n_batch});
    Session session = engine->open(evicting_options(method(), "48"));
    session.prefill(prompt);
    const std::vector<float> logits = logits_of(session);
    const HeadPositions positions = kept_positions(session);
    session.decode(17);
    if (expected.empty()) {
      expected = logits;
      expected_positions = positions;
      expected_next = logits_of(session);
      continue;
    }
    EXPECT_LT(max_difference(logits, expected), 1e-4) << n_batch;
    EXPECT_LT(max_difference(session.logits(), expected_next), 1e-4) << n_batch;
    EXPECT_EQ(positions, expected_positions) << n_batch;
  }
}

// A question after a compressed context is kept whole, whether it is fed in one batch or token by token.
TEST_P(EvictionTest, AppendEqualsDecoding) {
  const auto engine = Engine::create(tiny_model(), {.n_threads = 2, .n_batch = 16});
  for (const int n_question : {1, 5, 45}) {
    Session session = engine->open(evicting_options(method(), "40"));
    session.prefill(random_tokens(120, 300, 4));
    Session stepwise = session.fork();
    const std::vector<Token> question = random_tokens(n_question, 300, 5);
    const auto steps = decode_all(stepwise, question);
    std::size_t row = 0;
    PrefillOptions callbacks;
    callbacks.on_logits = [&](std::int32_t position, std::span<const float> logits) {
      EXPECT_EQ(position, 120 + static_cast<std::int32_t>(row));
      EXPECT_LT(max_difference(logits, steps[row++]), 1e-4);
    };
    session.append(question, callbacks);
    EXPECT_EQ(row, question.size());
    EXPECT_LT(max_difference(session.logits(), steps.back()), 1e-4);
    EXPECT_EQ(kept_positions(session), kept_positions(stepwise));
    EXPECT_EQ(session.statistics().entries_kept, 40 * 6 + n_question * 6);
  }
}

// A later turn is cut as well. kvzip cannot cut it, and throws before anything changes.
TEST_P(EvictionTest, LaterTurnsStayWithinTheBudget) {
  const auto engine = Engine::create(tiny_model(), {.n_threads = 2});
  Session session = engine->open(evicting_options(method(), "40"));
  session.prefill(random_tokens(100, 300, 6));
  decode_all(session, random_tokens(6, 300, 7));
  const SessionState before = state_of(session);
  if (GetParam().starts_with("kvzip")) {
    expect_error(ErrorCode::kUnsupported, [&] { session.prefill(random_tokens(50, 300, 8)); });
    EXPECT_EQ(state_of(session), before);
    return;
  }
  session.prefill(random_tokens(50, 300, 8));
  EXPECT_EQ(session.statistics().entries_kept, 40 * 6);
  for (const auto& positions : kept_positions(session)) EXPECT_EQ(positions.back(), 155);
  session.decode(9);
  EXPECT_LT(max_difference(session.logits(), session.logits()), 1);  // no logit is NaN
}

TEST_P(EvictionTest, ChunksStayWithinTheBudget) {
  const auto engine = Engine::create(tiny_model(), {.n_threads = 2});
  SessionOptions options = evicting_options(method(), "40");
  options.prefill_chunk = 32;
  if (GetParam().starts_with("kvzip")) {
    expect_error(ErrorCode::kUnsupported, [&] { engine->open(options); });
    return;
  }
  Session session = engine->open(options);
  session.prefill(random_tokens(150, 300, 6));
  EXPECT_EQ(session.statistics().entries_kept, 40 * 6);
  EXPECT_EQ(session.n_tokens(), 150);
  EXPECT_EQ(session.statistics().prompt_tokens, 150);
}

// Attention over the prompt is exact: evicting entries afterwards does not change the prompt's own logits.
TEST_P(EvictionTest, ThePromptsOwnLogitsAreThoseOfTheFullCache) {
  const auto engine = Engine::create(tiny_model(), {.n_threads = 2});
  const std::vector<Token> prompt = random_tokens(120, 300, 9);
  Session full = engine->open(full_options());
  full.prefill(prompt);
  Session session = engine->open(evicting_options(method(), "24"));
  session.prefill(prompt);
  EXPECT_EQ(logits_of(session), logits_of(full));
  full.decode(5);
  session.decode(5);
  EXPECT_GT(max_difference(session.logits(), full.logits()), 1e-3);
}

// A cancelled prefill does not affect a second one.
TEST_P(EvictionTest, PrefillAfterACancelledOneIsAsTheFirst) {
  const auto engine = Engine::create(tiny_model(), {.n_threads = 2, .n_batch = 32});
  const std::vector<Token> prompt = random_tokens(120, 300, 10);
  const SessionOptions options = evicting_options(method(), "40");
  Session fresh = engine->open(options);
  fresh.prefill(prompt);
  for (const int stop_after : {1, 6, 11}) {
    Session session = engine->open(options);
    int n_calls = 0;
    PrefillOptions callbacks;
    callbacks.on_progress = [&](std::int64_t, std::int64_t) { return ++n_calls < stop_after; };
    expect_error(ErrorCode::kCancelled, [&] { session.prefill(random_tokens(130, 300, 99), callbacks); });
    EXPECT_EQ(session.n_tokens(), 0);
    EXPECT_EQ(session.statistics().bytes_in_pages, 0U);
    test::expect_error(ErrorCode::kInvalidArgument, "there are no logits", [&] { session.logits(); });
    session.prefill(prompt);
    EXPECT_EQ(kept_positions(session), kept_positions(fresh));
    EXPECT_EQ(logits_of(session), logits_of(fresh));
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, EvictionTest, testing::ValuesIn(session_methods()), method_test_name);

}  // namespace
}  // namespace winnow::test
