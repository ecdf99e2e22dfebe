// Every allocation of a session's calls fails in turn: a call that throws leaves the session as it was, and the next
// try gives the same bits as without a failure.
#include "failing_allocations.h"

#include <gtest/gtest.h>

#include <new>

#include "engine/engine_test_support.h"
#include "engine/steps_in_turn.h"

namespace winnow::test {
namespace {

constexpr int kPromptTokens = 80;

std::vector<Token> some_tokens(int n, unsigned seed) {
  std::vector<Token> tokens;
  for (int i = 0; i < n; ++i)
    tokens.push_back(static_cast<Token>(3 + (static_cast<unsigned>(i) * 37 + seed * 11) % 90));
  return tokens;
}

// The part of a session that is compared for caches with codes: the kept entries and the last token's logits. A page of
// codes that was opened for more entries stays open, with the same numbers in other bytes.
struct Kept {
  std::int32_t n_tokens;
  HeadPositions positions;
  std::vector<float> logits;
  bool operator==(const Kept&) const = default;
};

Kept kept_by(const Session& session) {
  if (session.n_tokens() == 0) return {};
  return {session.n_tokens(), kept_positions(session), logits_of(session)};
}

using Change = std::function<void(Session&)>;

class FailingAllocationsTest : public testing::TestWithParam<std::string> {
 protected:
  Session open() const {
    SessionOptions options;
    options.n_ctx = 512;
    if (GetParam() != "full") {
      options.eviction = EvictionOptions::parse(GetParam());
      options.budget = Budget::parse("50%");
    }
    return engine_->open(options);
  }
  Session read() const {
    Session session = open();
    session.prefill(some_tokens(kPromptTokens, 1));
    return session;
  }

  // Returns a session whose next entry needs a new page.
  Session nearly_full() const {
    Session session = read();
    session.append(some_tokens(13, 3));
    return session;
  }

  void expect_all_or_nothing(const std::function<Session()>& before, const Change& change) const {
    Session whole = before();
    const bool is_coded = whole.impl().shape.has_codes();
    const std::string old_state = file_of(whole, directory_);
    const Kept old_kept = kept_by(whole);
    change(whole);
    const std::string expected = file_of(whole, directory_);
    std::int64_t n_thrown = 0;
    for (std::int64_t n = 1;; ++n) {
      Session session = before();
      bool has_thrown = false, has_happened = false;
      {
        const FailingAllocation one(n);
        try {
          change(session);
        } catch (const std::bad_alloc&) {
          has_thrown = true;
        } catch (const Error& error) {
          has_thrown = true;
          EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory) << "allocation " << n << ": " << error.what();
        }
        has_happened = one.has_happened();
      }
      if (!has_happened) break;
      if (!has_thrown) continue;  // the call goes on without the memory
      ++n_thrown;
      const Kept kept = kept_by(session);
      ASSERT_EQ(kept.n_tokens, old_kept.n_tokens) << "allocation " << n;
      ASSERT_EQ(kept.positions, old_kept.positions) << "allocation " << n;
      ASSERT_EQ(kept.logits, old_kept.logits) << "allocation " << n;
      if (!is_coded) {
        ASSERT_TRUE(file_of(session, directory_) == old_state) << "allocation " << n;
      }
      change(session);
      ASSERT_TRUE(file_of(session, directory_) == expected) << "the try after allocation " << n;
    }
    EXPECT_GT(n_thrown, 0);
  }

  TemporaryDirectory directory_;
  // oneDNN's products are not used, since the standard library's allocations for them fail as our own do.
  std::shared_ptr<Engine> engine_ =
      Engine::create(tiny_model({.n_layer = 2}), {.n_threads = 1, .prefill_weights = PrefillWeights::kAsIs});
};

TEST_P(FailingAllocationsTest, Prefill) {
  expect_all_or_nothing([&] { return open(); },
                        [](Session& session) { session.prefill(some_tokens(kPromptTokens, 1)); });
}

TEST_P(FailingAllocationsTest, Append) {
  expect_all_or_nothing([&] { return read(); }, [](Session& session) { session.append(some_tokens(40, 2)); });
}

TEST_P(FailingAllocationsTest, Decode) {
  expect_all_or_nothing([&] { return nearly_full(); }, [](Session& session) { session.decode(5); });
}

TEST_P(FailingAllocationsTest, DecodeInTwoParts) {
  expect_all_or_nothing([&] { return nearly_full(); },
                        [&](Session& session) {
                          Session* sessions[] = {&session};
                          const Token tokens[] = {5};
                          start_step(*engine_, sessions, tokens);
                          finish_step(*engine_);
                        });
}

TEST_P(FailingAllocationsTest, ForkAndDecode) {
  const Session original = read();
  const std::string state = file_of(original, directory_);
  expect_all_or_nothing([&] { return original.fork(); }, [](Session& session) { session.decode(5); });
  EXPECT_TRUE(file_of(original, directory_) == state);
  for (std::int64_t n = 1;; ++n) {
    const FailingAllocation one(n);
    try {
      const Session fork = original.fork();
    } catch (const std::bad_alloc&) {
    }
    if (!one.has_happened()) break;
  }
  EXPECT_TRUE(file_of(original, directory_) == state);
}

TEST_P(FailingAllocationsTest, SaveAndLoad) {
  const Session session = read();
  const std::string path = directory_.file("session");
  session.save(path);
  const std::string bytes = read_bytes(path);
  for (std::int64_t n = 1;; ++n) {
    bool has_happened = false;
    {
      const FailingAllocation one(n);
      try {
        session.save(path);
      } catch (const std::bad_alloc&) {
      } catch (const Error&) {
      }
      has_happened = one.has_happened();
    }
    ASSERT_TRUE(read_bytes(path) == bytes) << "allocation " << n;
    if (!has_happened) break;
  }
  const std::size_t in_use = engine_->memory().kv_bytes_in_use;
  for (std::int64_t n = 1;; ++n) {
    bool has_happened = false;
    {
      const FailingAllocation one(n);
      try {
        const Session loaded = engine_->load_session(path);
      } catch (const std::bad_alloc&) {
      } catch (const Error&) {
      }
      has_happened = one.has_happened();
    }
    ASSERT_EQ(engine_->memory().kv_bytes_in_use, in_use) << "allocation " << n;
    if (!has_happened) break;
  }
  EXPECT_TRUE(file_of(engine_->load_session(path), directory_) == file_of(session, directory_));
}

TEST_P(FailingAllocationsTest, NothingIsKeptOfWhatFailed) {
  const std::size_t in_use = engine_->memory().kv_bytes_in_use;
  for (std::int64_t n = 1;; n += 1 + n / 64) {
    bool has_happened = false;
    {
      Session session = open();
      const FailingAllocation one(n);
      try {
        session.prefill(some_tokens(kPromptTokens, 1));
      } catch (const std::bad_alloc&) {
      } catch (const Error&) {
      }
      has_happened = one.has_happened();
    }
    ASSERT_EQ(engine_->memory().kv_bytes_in_use, in_use) << "allocation " << n;
    if (!has_happened) break;
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, FailingAllocationsTest,
                         testing::Values("full", "snapkv", "ada-snapkv", "lava", "auto", "auto-fast"),
                         method_test_name);

}  // namespace
}  // namespace winnow::test
