// Forks share pages until one of the two writes, and never see each other's entries.
#include <gtest/gtest.h>

#include "engine/engine_test_support.h"

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

}  // namespace
}  // namespace winnow::test
