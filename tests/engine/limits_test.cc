// Calls that a session refuses, and that leave it as it was: cancelled calls, byte limits, full contexts, bad options.
#include <gtest/gtest.h>

#include "engine/engine_test_support.h"

namespace winnow::test {
namespace {

constexpr int kHeads = 6;  // layers x KV heads of the default tiny model

TEST(OptionsTest, ThatCannotBeUsed) {
  const auto model = tiny_model({.head_dim = 48});
  expect_error(ErrorCode::kInvalidArgument, [&] { Engine::create(model, {.n_threads = -1}); });
  expect_error(ErrorCode::kInvalidArgument, [&] { Engine::create(model, {.n_batch = -1}); });
  EXPECT_EQ(Engine::create(model)->n_batch(), 512);
  expect_error(ErrorCode::kInvalidArgument, [&] { Engine::create(model, {.kv_bytes_limit = 100}); });
  const auto engine = Engine::create(model, {.n_threads = 1});
  const auto refuse = [&](const std::function<void(SessionOptions&)>& change) {
    SessionOptions options = evicting_options("snapkv", "64");
    change(options);
    expect_error(ErrorCode::kInvalidArgument, [&] { engine->open(options); });
  };
  refuse([](SessionOptions& o) { o.budget.reset(); });
  refuse([](SessionOptions& o) { o.eviction = {}; });
  refuse([](SessionOptions& o) { o.n_ctx = -1; });
  refuse([](SessionOptions& o) { o.cut_every = 0; });
  refuse([](SessionOptions& o) { o.prefill_chunk = -1; });
  refuse([](SessionOptions& o) { o.key_type = EntryType::kQ8_0; });  // a head size of 48
  refuse([](SessionOptions& o) { o.value_type = EntryType::kQ4_0; });
  refuse([](SessionOptions& o) {
    o.eviction = {};
    o.budget.reset();
    o.prefill_chunk = 16;
  });
}

// Each of these lengths asks for more memory than there is, or for hours.
TEST(OptionsTest, AbsurdLengthsAreRefused) {
  const auto engine = Engine::create(tiny_model(), {.n_threads = 1});
  const auto refusal = [&](const std::string& method, const std::function<void(SessionOptions&)>& change = {}) {
    std::string text;
    SessionOptions options;
    options.n_ctx = 64;
    options.budget = Budget::parse("50%");
    try {
      options.eviction = EvictionOptions::parse(method);
      if (change) change(options);
      engine->open(options);
      ADD_FAILURE() << method;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << method;
      text = error.what();
    }
    return text;
  };
  for (const char* method : {"snapkv:window=", "snapkv:sinks=", "h2o:last-rows=", "kvzip:floor=", "kvzip:window=",
                             "streaming-llm:window=", "cake:window=", "expected-attention:ea-skip="}) {
    for (const char* value : {"65", "1000000", "1073741824"}) {
      EXPECT_NE(refusal(std::string(method) + value).find("the context has 64 tokens"), std::string::npos) << method;
    }
    EXPECT_NE(refusal(std::string(method) + "2147483647").find("give integer"), std::string::npos) << method;
  }
  for (const char* method : {"snapkv:kernel=1025", "snapkv:kernel=1073741823", "expected-attention:ea-future=65537",
                             "cake:tau1=1e-300", "cake:tau2=0.09", "cake:gamma=1e300", "pyramidkv:beta=1e300",
                             "critical-snapkv:critical-eps=1e10", "expected-attention:ea-eps=1e300"}) {
    EXPECT_NE(refusal(method).find(": give "), std::string::npos) << method;
  }
  const std::string rows = refusal("h2o:window=0", [](SessionOptions& options) {
    options.decode_cut = SessionOptions::DecodeCut::kTotal;
    options.cut_every = 1 << 30;
  });
  EXPECT_NE(rows.find("more than the 1024 MiB allowed"), std::string::npos) << rows;
  // The defaults of a preset fit any context.
  SessionOptions options{.n_ctx = 8};
  options.eviction = EvictionOptions::parse("snapkv");
  options.budget = Budget::parse("50%");
  EXPECT_NO_THROW(engine->open(options));
}

class LimitsTest : public testing::Test {
 protected:
  const std::shared_ptr<const Model> model_ = tiny_model();
  const std::shared_ptr<Engine> engine_ = Engine::create(model_, {.n_threads = 2, .n_batch = 32});
};

TEST_F(LimitsTest, EmptyPromptsAndForeignTokens) {
  Session session = engine_->open(full_options());
  expect_error(ErrorCode::kInvalidArgument, [&] { session.logits(); });
  expect_error(ErrorCode::kInvalidArgument, [&] { session.prefill({}); });
  expect_error(ErrorCode::kInvalidArgument, [&] { session.append({}); });
  for (const Token bad : {-1, 300, 1 << 30}) {
    const std::vector<Token> tokens = {5, bad, 6};
    expect_error(ErrorCode::kInvalidArgument, [&] { session.prefill(tokens); });
    expect_error(ErrorCode::kInvalidArgument, [&] { session.append(tokens); });
    expect_error(ErrorCode::kInvalidArgument, [&] { session.decode(bad); });
  }
  EXPECT_EQ(session.n_tokens(), 0);
  session.decode(5);  // a sequence may begin with a decoded token
  EXPECT_EQ(session.n_tokens(), 1);
}

TEST_F(LimitsTest, StepsThatMakeNoSense) {
  Session a = engine_->open(full_options());
  Session b = engine_->open(full_options());
  const auto other_engine = Engine::create(model_, {.n_threads = 1});
  Session foreign = other_engine->open(full_options());
  const std::vector<Token> tokens = {5, 6};
  const auto refuse = [&](const std::vector<Session*>& sessions, std::span<const Token> fed) {
    expect_error(ErrorCode::kInvalidArgument, [&] { engine_->decode(sessions, fed); });
  };
  refuse({&a, &a}, tokens);
  refuse({&a, &foreign}, tokens);
  refuse({&a}, tokens);
  refuse({}, {});
  const std::vector<Token> bad = {5, 300};
  refuse({&a, &b}, bad);
  EXPECT_EQ(a.n_tokens(), 0);
  EXPECT_EQ(engine_->memory().kv_bytes_in_use, 0U);
}

TEST_F(LimitsTest, FullContext) {
  SessionOptions options = full_options();
  options.n_ctx = 50;
  Session session = engine_->open(options);
  expect_error(ErrorCode::kContextFull, [&] { session.prefill(random_tokens(51, 300, 1)); });
  session.prefill(random_tokens(48, 300, 1));
  expect_error(ErrorCode::kContextFull, [&] { session.append(random_tokens(3, 300, 2)); });
  expect_error(ErrorCode::kContextFull, [&] { session.prefill(random_tokens(3, 300, 2)); });
  decode_all(session, random_tokens(2, 300, 3));
  const SessionState before = state_of(session);
  expect_error(ErrorCode::kContextFull, [&] { session.decode(7); });
  EXPECT_EQ(state_of(session), before);

  Session other = engine_->open(full_options());  // nothing happens to another session of the same step either
  Session* sessions[] = {&other, &session};
  const std::vector<Token> tokens = {5, 6};
  expect_error(ErrorCode::kContextFull, [&] { engine_->decode(sessions, tokens); });
  EXPECT_EQ(other.n_tokens(), 0);
}

TEST_F(LimitsTest, EvictedEntriesStillCountInTheContext) {
  SessionOptions options = evicting_options("snapkv:window=8", "16");
  options.n_ctx = 60;
  Session session = engine_->open(options);
  session.prefill(random_tokens(60, 300, 1));
  EXPECT_EQ(session.statistics().entries_kept, 16 * kHeads);
  expect_error(ErrorCode::kContextFull, [&] { session.decode(7); });
}

TEST_F(LimitsTest, CancelledAppend) {
  Session session = engine_->open(evicting_options("snapkv:window=8", "24"));
  session.prefill(random_tokens(80, 300, 1));
  Session untouched = session.fork();
  const SessionState before = state_of(session);
  for (const int stop_after : {1, 3, 6}) {
    int n_calls = 0;
    PrefillOptions callbacks;
    callbacks.on_progress = [&](std::int64_t done, std::int64_t total) {
      EXPECT_LE(done, total);
      EXPECT_EQ(total, 50 * 3);
      return ++n_calls < stop_after;
    };
    expect_error(ErrorCode::kCancelled, [&] { session.append(random_tokens(50, 300, 2), callbacks); });
    expect_error(ErrorCode::kCancelled, [&] {
      n_calls = 0;
      session.prefill(random_tokens(50, 300, 2), callbacks);
    });
    EXPECT_EQ(state_of(session), before);
    EXPECT_EQ(logits_of(session), logits_of(untouched));
  }
  const std::vector<Token> turn = random_tokens(30, 300, 3);
  session.prefill(turn);
  untouched.prefill(turn);
  EXPECT_EQ(kept_positions(session), kept_positions(untouched));
  EXPECT_EQ(logits_of(session), logits_of(untouched));
}

// A turn makes codes on a head's last page plain. One that fails leaves the codes: coded again they would be others.
TEST_F(LimitsTest, ATurnThatFailsLeavesCodes) {
  const auto engine = wide_engine();
  SessionOptions whole = full_options();
  whole.key_type = whole.value_type = EntryType::kR4;
  SessionOptions cut;
  cut.eviction = EvictionOptions::parse("snapkv:window=8,bits=4");
  cut.budget = Budget::parse("24");
  for (const SessionOptions& options : {whole, cut}) {
    Session session = engine->open(options);
    session.prefill(random_tokens(77, 300, 1));
    Session untouched = session.fork();
    const std::size_t bytes = session.statistics().bytes_in_pages;
    for (const int stop_after : {1, 2}) {
      int n_calls = 0;
      PrefillOptions callbacks;
      callbacks.on_progress = [&](std::int64_t, std::int64_t) { return ++n_calls < stop_after; };
      expect_error(ErrorCode::kCancelled, [&] { session.append(random_tokens(50, 300, 2), callbacks); });
      EXPECT_EQ(session.statistics().bytes_in_pages, bytes);
    }
    for (const Token token : random_tokens(40, 300, 3)) {
      session.decode(token);
      untouched.decode(token);
      ASSERT_EQ(logits_of(session), logits_of(untouched)) << session.n_tokens();
    }
  }
}

TEST_F(LimitsTest, ChunksThatCannotBeCutAreRefusedBeforeTheFirst) {
  SessionOptions options = evicting_options("snapkv:sinks=6", "5%");
  options.prefill_chunk = 16;
  Session session = engine_->open(options);
  int n_calls = 0;
  PrefillOptions callbacks;
  callbacks.on_progress = [&](std::int64_t, std::int64_t) { return ++n_calls > 0; };
  expect_error(ErrorCode::kInvalidArgument, [&] { session.prefill(random_tokens(100, 300, 1), callbacks); });
  EXPECT_EQ(n_calls, 0);
}

TEST_F(LimitsTest, CancelledChunks) {
  SessionOptions options = evicting_options("snapkv:window=8", "24");
  options.prefill_chunk = 32;
  Session session = engine_->open(options);
  int n_calls = 0;
  PrefillOptions callbacks;
  callbacks.on_progress = [&](std::int64_t, std::int64_t) { return ++n_calls < 8; };
  expect_error(ErrorCode::kCancelled, [&] { session.prefill(random_tokens(100, 300, 1), callbacks); });
  EXPECT_EQ(session.n_tokens(), 0);
  EXPECT_EQ(session.statistics().prompt_tokens, 0);
  EXPECT_EQ(engine_->memory().kv_bytes_in_use, 0U);
  const std::vector<Token> prompt = random_tokens(90, 300, 2);
  session.prefill(prompt);
  Session fresh = engine_->open(options);
  fresh.prefill(prompt);
  EXPECT_EQ(logits_of(session), logits_of(fresh));
  EXPECT_EQ(kept_positions(session), kept_positions(fresh));
}

TEST_F(LimitsTest, ProgressGoesUpToTheEnd) {
  Session session = engine_->open(full_options());
  std::vector<std::int64_t> seen;
  PrefillOptions callbacks;
  callbacks.on_progress = [&](std::int64_t done, std::int64_t total) {
    EXPECT_EQ(total, 100 * 3);
    seen.push_back(done);
    return true;
  };
  session.prefill(random_tokens(100, 300, 1), callbacks);
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
  EXPECT_EQ(seen.size(), 3U * 4);
  EXPECT_EQ(seen.back(), 300);
}

// A turn that cannot be cut to the budget is refused before it is fed.
// A window shrinks to the budget, but sinks do not.
TEST_F(LimitsTest, BudgetBelowTheSinks) {
  Session session = engine_->open(evicting_options("snapkv:window=32,sinks=20", "16"));
  expect_error(ErrorCode::kInvalidArgument, [&] { session.prefill(random_tokens(80, 300, 1)); });
  EXPECT_EQ(session.n_tokens(), 0);
  session.prefill(random_tokens(10, 300, 1));
  const SessionState before = state_of(session);
  expect_error(ErrorCode::kInvalidArgument, [&] { session.prefill(random_tokens(70, 300, 2)); });
  EXPECT_EQ(state_of(session), before);
  session.decode(5);
  EXPECT_EQ(session.n_tokens(), 11);
}

TEST_F(LimitsTest, ByteBudgets) {
  const CacheShape shape = engine_->open(full_options()).impl().cache.shape();
  const std::size_t entries = 50;
  const std::string exact = std::to_string(entries * shape.entry_bytes(0) * kHeads) + "B";
  Session session = engine_->open(evicting_options("snapkv:window=8", exact));
  session.prefill(random_tokens(100, 300, 1));
  EXPECT_EQ(session.statistics().entries_kept, static_cast<std::int64_t>(entries) * kHeads);
  EXPECT_EQ(session.statistics().bytes_kept, entries * shape.entry_bytes(0) * kHeads);
  const std::string small = std::to_string(shape.page_bytes(0) * kHeads - 1) + "B";
  Session none = engine_->open(evicting_options("snapkv:window=8", small));
  expect_error(ErrorCode::kInvalidArgument, [&] { none.prefill(random_tokens(100, 300, 1)); });
  EXPECT_EQ(none.n_tokens(), 0);
}

// While decoding, the token that would make such a cut necessary is not fed.
TEST_F(LimitsTest, BudgetBelowTheSinksWhileDecoding) {
  SessionOptions options = evicting_options("snapkv:window=32,sinks=20", "16");
  options.decode_cut = SessionOptions::DecodeCut::kTotal;
  Session session = engine_->open(options);
  session.prefill(random_tokens(14, 300, 1));
  decode_all(session, random_tokens(2, 300, 2));
  const SessionState before = state_of(session);
  expect_error(ErrorCode::kInvalidArgument, [&] { session.decode(5); });
  EXPECT_EQ(state_of(session), before);
}

class ByteLimitTest : public testing::Test {
 protected:
  const std::shared_ptr<const Model> model_ = tiny_model();
  const std::size_t entry_bytes_ = 2 * 32 * sizeof(float) + kernels::kPositionBytes;
  // Returns an engine with room for the pages and the staging buffer of n tokens with the full cache.
  std::shared_ptr<Engine> engine_for(std::size_t n) const {
    const std::size_t pages = (n + kPageEntries - 1) / kPageEntries * kPageEntries * kHeads;
    return Engine::create(model_, {.n_threads = 1, .kv_bytes_limit = (pages + 2 * n) * entry_bytes_ + 8192});
  }
};

TEST_F(ByteLimitTest, PrefillBeyondIt) {
  const auto engine = engine_for(100);
  Session session = engine->open(full_options());
  for (const int n : {400, 300, 260}) {  // the staging buffer does not fit; some layers fit; nearly all
    expect_error(ErrorCode::kOutOfMemory, [&] { session.prefill(random_tokens(n, 300, 1)); });
    EXPECT_EQ(session.n_tokens(), 0);
    EXPECT_EQ(session.statistics().prompt_tokens, 0);
    EXPECT_EQ(engine->memory().kv_bytes_in_use, 0U);
    EXPECT_LT(engine->memory().kv_bytes_resident, 8192U);
  }
  session.prefill(random_tokens(100, 300, 1));
  EXPECT_LE(engine->memory().kv_bytes_peak, engine->memory().kv_bytes_limit);
  // With eviction, the same limit is enough for the long prompt.
  session.clear();
  Session evicting = engine->open(evicting_options("snapkv:window=8", "32"));
  evicting.prefill(random_tokens(260, 300, 1));
  EXPECT_EQ(evicting.statistics().entries_kept, 32 * kHeads);
}

TEST_F(ByteLimitTest, TurnsAndStepsBeyondIt) {
  const auto engine = engine_for(100);
  Session session = engine->open(full_options());
  session.prefill(random_tokens(90, 300, 1));
  Session untouched = Engine::create(model_, {.n_threads = 1})->open(full_options());
  untouched.prefill(random_tokens(90, 300, 1));
  const SessionState before = state_of(session);
  expect_error(ErrorCode::kOutOfMemory, [&] { session.append(random_tokens(200, 300, 2)); });
  EXPECT_EQ(state_of(session), before);
  EXPECT_EQ(logits_of(session), logits_of(untouched));

  Session second = engine->open(full_options());
  second.decode(3);
  int n_steps = 0;
  Session* both[] = {&session, &second};
  const std::vector<Token> tokens = {4, 5};
  SessionState last;
  SessionState last_of_second;
  expect_error(ErrorCode::kOutOfMemory, [&] {
    for (; n_steps < 500; ++n_steps) {
      last = state_of(session);
      last_of_second = state_of(second);
      engine->decode(both, tokens);
    }
  });
  EXPECT_EQ(state_of(session), last);
  EXPECT_EQ(state_of(second), last_of_second);
  EXPECT_EQ(engine->memory().kv_bytes_in_use, last.bytes_in_pages + last_of_second.bytes_in_pages);
  for (int i = 0; i < n_steps; ++i) untouched.decode(4);
  EXPECT_LT(max_difference(session.logits(), untouched.logits()), 1e-4);
  second.clear();
  session.decode(4);  // there is room again
  untouched.decode(4);
  EXPECT_LT(max_difference(session.logits(), untouched.logits()), 1e-4);
}

}  // namespace
}  // namespace winnow::test
