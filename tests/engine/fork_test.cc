// Forks share pages until one of the two writes, and never see each other's entries.
#include <gtest/gtest.h>

#include "engine/engine_test_support.h"
#include "expect_error.h"
#include "model/tiny_architectures.h"

namespace winnow::test {
namespace {

class ForkTest : public testing::TestWithParam<std::string> {
 protected:
  SessionOptions options() const { return GetParam() == "full" ? full_options() : evicting_options(GetParam(), "40"); }
  const std::shared_ptr<Engine> engine_ = Engine::create(tiny_model(), {.n_threads = 2});
  const std::vector<Token> prompt_ = random_tokens(100, 300, 1);
  const std::vector<Token> left_ = random_tokens(45, 300, 2);
  const std::vector<Token> right_ = random_tokens(45, 300, 3);

  Session fresh() const {
    Session session = engine_->open(options());
    session.prefill(prompt_);
    return session;
  }
};

TEST_P(ForkTest, ParentAndForkDiverge) {
  Session left_alone = fresh();
  const auto left_logits = decode_all(left_alone, left_);
  Session right_alone = fresh();
  const auto right_logits = decode_all(right_alone, right_);

  Session parent = fresh();
  Session fork = parent.fork();
  EXPECT_EQ(state_of(fork), state_of(parent));
  EXPECT_EQ(logits_of(fork), logits_of(parent));
  for (std::size_t i = 0; i < left_.size(); ++i) {  // alternately, over page boundaries
    parent.decode(left_[i]);
    fork.decode(right_[i]);
    ASSERT_EQ(logits_of(parent), left_logits[i]) << i;
    ASSERT_EQ(logits_of(fork), right_logits[i]) << i;
  }
  EXPECT_EQ(kept_positions(parent), kept_positions(left_alone));
  EXPECT_EQ(kept_positions(fork), kept_positions(right_alone));
}

TEST_P(ForkTest, LaterTurnsDiverge) {
  Session left_alone = fresh();
  left_alone.prefill(left_);
  Session right_alone = fresh();
  right_alone.append(right_);

  Session parent = fresh();
  Session fork = parent.fork();
  parent.prefill(left_);
  fork.append(right_);
  EXPECT_EQ(logits_of(parent), logits_of(left_alone));
  EXPECT_EQ(logits_of(fork), logits_of(right_alone));
  EXPECT_EQ(kept_positions(parent), kept_positions(left_alone));
  parent.decode(7);
  left_alone.decode(7);
  EXPECT_EQ(logits_of(parent), logits_of(left_alone));
  fork.decode(8);
  right_alone.decode(8);
  EXPECT_EQ(logits_of(fork), logits_of(right_alone));
}

TEST_P(ForkTest, AForkOutlivesItsParent) {
  Session alone = fresh();
  const auto expected = decode_all(alone, left_);
  auto parent = std::make_unique<Session>(fresh());
  Session fork = parent->fork();
  Session second = fork.fork();
  decode_all(*parent, right_);
  parent.reset();
  EXPECT_EQ(decode_all(fork, left_), expected);
  fork.clear();
  EXPECT_EQ(fork.n_tokens(), 0);
  EXPECT_EQ(decode_all(second, left_), expected);
}

TEST_P(ForkTest, SharesPagesUntilItWrites) {
  Session parent = fresh();
  const std::size_t before = engine_->memory().kv_bytes_in_use;
  Session fork = parent.fork();
  EXPECT_EQ(engine_->memory().kv_bytes_in_use, before);
  fork.decode(5);
  const std::size_t page = parent.impl().cache.shape().page_bytes(0);
  EXPECT_LE(engine_->memory().kv_bytes_in_use, before + 6 * page);  // one page a head at most
}

INSTANTIATE_TEST_SUITE_P(Methods, ForkTest,
                         testing::Values("full", "streaming-llm", "snapkv:window=8", "lava:window=8",
                                         "ada-snapkv:window=8"),
                         method_test_name);

// A truncated session continues as one that never saw the dropped tokens.
TEST(Truncate, LeavesNoTrace) {
  for (const EntryType type : {EntryType::kF32, EntryType::kF16, EntryType::kQ8_0, EntryType::kR4}) {
    SCOPED_TRACE(std::string(entry_type_name(type)));
    // With f32 weights, prompts of all lengths use the same products.
    const auto engine = Engine::create(tiny_model(), {.n_threads = 2, .prefill_weights = PrefillWeights::kF32});
    SessionOptions options = full_options();
    options.key_type = options.value_type = type;
    const bool is_coded = type == EntryType::kQ8_0 || type == EntryType::kR4;
    const std::vector<Token> tokens = random_tokens(150, 300, 1), other = random_tokens(40, 300, 2);
    Session whole = engine->open(options);
    whole.prefill(tokens);
    decode_all(whole, other);
    for (const std::int32_t n : {189, 168, 97, 36, 33, 4, 1}) {
      const std::int32_t n_back = whole.truncatable(n);
      EXPECT_EQ(n_back, is_coded && n > 4 ? n - (n - 4) % 32 : n);
      Session back = whole.fork();
      back.truncate(n_back);
      EXPECT_EQ(back.n_tokens(), n_back);
      test::expect_error(ErrorCode::kInvalidArgument, "there are no logits", [&] { back.logits(); });
      Session fresh = engine->open(options);
      const std::span<const Token> all = whole.tokens();
      fresh.prefill(all.first(static_cast<std::size_t>(std::min(n_back, 150))));
      if (n_back > 150) decode_all(fresh, all.subspan(150, static_cast<std::size_t>(n_back) - 150));
      back.append(other);
      fresh.append(other);
      // A prompt of a few tokens uses other products than the same rows in a long prompt.
      EXPECT_LT(max_difference(logits_of(back), logits_of(fresh)), n_back > 32 ? 1e-9 : 0.05) << n;
      EXPECT_EQ(kept_positions(back), kept_positions(fresh)) << n;
      EXPECT_EQ(back.statistics().bytes_in_pages, fresh.statistics().bytes_in_pages) << n;
    }
    EXPECT_EQ(whole.n_tokens(), 190);  // no fork wrote to it
    Session unchanged = whole.fork();
    unchanged.truncate(190);
    EXPECT_EQ(logits_of(unchanged), logits_of(whole));
  }
}

TEST(Truncate, KnowsWhereThereIsNoWayBack) {
  const std::vector<Token> tokens = random_tokens(100, 200, 1);
  const auto refuse = [&](Session session, std::int32_t n) {
    EXPECT_EQ(session.truncatable(n), 0);
    const SessionState before = state_of(session);
    test::expect_error(ErrorCode::kInvalidArgument, "cannot go back", [&] { session.truncate(n); });
    EXPECT_EQ(state_of(session), before);
    EXPECT_EQ(session.truncatable(100), 100);
    session.truncate(100);
  };
  const auto read = [&](const TinyModelOptions& model, const SessionOptions& options) {
    Session session = Engine::create(tiny_model(model), {.n_threads = 1})->open(options);
    session.prefill(tokens);
    return session;
  };
  refuse(read({}, evicting_options("snapkv:window=8", "40")), 50);
  refuse(read({}, evicting_options("snapkv:window=8", "100%")), 50);  // its saved queries are those of the last tokens
  for (const char* architecture : {"qwen35", "lfm2", "gemma3", "gemma4"})
    refuse(read(tiny_options(architecture), full_options()), 50);
  for (const std::int32_t n : {101, 0, -1}) {
    Session session = read({}, full_options());
    test::expect_error(ErrorCode::kInvalidArgument, "cannot go back", [&] { session.truncate(n); });
  }
  // A window that has not moved yet holds all tokens.
  TinyModelOptions wide = tiny_options("gemma3");
  wide.sliding_window = 128;
  EXPECT_EQ(read(wide, full_options()).truncatable(50), 50);
}

}  // namespace
}  // namespace winnow::test
