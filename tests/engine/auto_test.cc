// The methods auto and auto-fast as sessions: bits by the budget, later turns, shared prefills, memory.
#include <gtest/gtest.h>

#include <vector>

#include "engine/engine_test_support.h"
#include "expect_error.h"

namespace winnow::test {
namespace {

const TinyModelOptions kShape{.n_layer = 2, .n_head = 4, .n_kv_head = 2, .head_dim = 16, .seed = 3};

std::shared_ptr<Engine> small_engine() { return Engine::create(tiny_model(kShape), {.n_threads = 2, .n_batch = 48}); }

SessionOptions auto_options(const std::string& method, const std::string& budget) {
  SessionOptions options;
  options.eviction = EvictionOptions::parse(method);
  options.budget = Budget::parse(budget);
  return options;
}

TEST(Auto, StoresInBitsByTheBudget) {
  const auto engine = Engine::create(tiny_model({.n_layer = 2, .n_head = 4, .n_kv_head = 2, .head_dim = 32}),
                                     {.n_threads = 2, .n_batch = 64});
  const std::vector<Token> prompt = random_tokens(700, 300, 4);
  for (const char* method : {"auto", "auto:fast"}) {
    const struct {
      const char* budget;
      EntryType type;
    } cases[] = {{"40%bytes", EntryType::kQ8_0},
                 {"15%", EntryType::kQ8_0},
                 {"12%bytes", EntryType::kR4},
                 {"64", EntryType::kR4},
                 {"20KiB", EntryType::kR4}};
    for (const auto& c : cases) {
      Session session = engine->open(auto_options(method, c.budget));
      EXPECT_EQ(session.options().key_type, c.type) << c.budget;
      EXPECT_EQ(session.options().value_type, c.type) << c.budget;
      session.prefill(prompt);
      if (Budget::parse(c.budget).unit != Budget::Unit::kByteFraction) continue;
      const double most = Budget::parse(c.budget).amount * 700 * 4 * 2 * 32 * 2;
      EXPECT_LE(static_cast<double>(session.statistics().bytes_kept), most) << method << c.budget;
      EXPECT_GT(static_cast<double>(session.statistics().bytes_kept), most - 200) << method << c.budget;
    }
  }
  SessionOptions options = auto_options("auto", "10%");
  options.key_type = EntryType::kQ8_0;
  expect_error(ErrorCode::kInvalidArgument, "bits=own", [&] { engine->open(options); });
  options.eviction.bits = Bits::kOwn;
  EXPECT_EQ(engine->open(options).options().value_type, EntryType::kF16);
  options.eviction.bits = Bits::k8;
  EXPECT_EQ(engine->open(options).options().value_type, EntryType::kQ8_0);
}

TEST(Auto, NumberOfThreadsDoesNotMatter) {
  const std::vector<Token> prompt = random_tokens(400, 300, 4), later = random_tokens(20, 300, 5);
  std::vector<std::vector<float>> expected;
  for (const int n_threads : {1, 2, 5}) {
    const auto engine = Engine::create(tiny_model(kShape), {.n_threads = n_threads, .n_batch = 48});
    Session session = engine->open(auto_options("auto", "10%bytes"));
    session.prefill(prompt);
    const std::vector<std::vector<float>> logits = decode_all(session, later);
    if (expected.empty()) expected = logits;
    EXPECT_EQ(logits, expected) << n_threads << " threads";
  }
}

TEST(Auto, GoesOnWithLaterTurnsChunksAndForks) {
  const auto engine = small_engine();
  const std::vector<Token> prompt = random_tokens(500, 300, 4), turn = random_tokens(90, 300, 5);
  SessionOptions options = auto_options("auto", "12%bytes");
  Session session = engine->open(options);
  session.prefill(prompt);
  Session fork = session.fork();
  session.prefill(turn);
  const double most = 0.12 * 590 * 4 * 2 * 16 * 2;
  EXPECT_LE(static_cast<double>(session.statistics().bytes_kept), most);
  EXPECT_GT(static_cast<double>(session.statistics().bytes_kept), 0.95 * most);
  fork.prefill(turn);
  EXPECT_EQ(logits_of(fork), logits_of(session));
  EXPECT_EQ(kept_positions(fork), kept_positions(session));
  decode_all(fork, random_tokens(70, 300, 6));
  options.prefill_chunk = 128;
  Session chunked = engine->open(options);
  chunked.prefill(prompt);
  EXPECT_LE(static_cast<double>(chunked.statistics().bytes_kept), 0.12 * 500 * 4 * 2 * 16 * 2);
  EXPECT_LE(engine->memory().kv_bytes_in_use, engine->memory().kv_bytes_peak);
}

TEST(Auto, SharesAPrefillWithOtherCodes) {
  const auto engine = small_engine();
  const std::vector<Token> prompt = random_tokens(300, 300, 4), later = random_tokens(3, 300, 6);
  const auto open_all = [&] {
    std::vector<Session> sessions;
    sessions.push_back(engine->open());
    sessions.push_back(engine->open(auto_options("auto", "12%bytes")));
    sessions.push_back(engine->open(auto_options("auto-fast", "8%bytes")));
    sessions.push_back(engine->open(auto_options("snapkv:fit=values,bits=4", "30%")));
    return sessions;
  };
  std::vector<Session> together = open_all(), alone = open_all();
  std::vector<Session*> pointers;
  for (Session& session : together) pointers.push_back(&session);
  engine->prefill(pointers, prompt);
  for (std::size_t i = 0; i < alone.size(); ++i) {
    alone[i].prefill(prompt);
    EXPECT_EQ(kept_positions(together[i]), kept_positions(alone[i])) << i;
    EXPECT_EQ(decode_all(together[i], later), decode_all(alone[i], later)) << i;
  }
}

TEST(Auto, TakesNoMoreThanWasEstimated) {
  const auto engine = small_engine();
  for (const char* method : {"auto", "auto-fast", "snapkv:bits=4", "full"}) {
    for (const std::int32_t chunk : {0, 100}) {
      for (const int n_later : {1, 40}) {
        SessionOptions options;
        options.key_type = options.value_type = EntryType::kR4;
        if (std::string_view(method) != "full") options = auto_options(method, "10%bytes");
        options.prefill_chunk = std::string_view(method) == "full" ? 0 : chunk;
        const MemoryEstimate estimate = engine->estimate(options, 600, n_later);
        Session session = engine->open(options);
        engine->reset_peak();
        session.prefill(random_tokens(600, 300, 2));
        session.append(random_tokens(n_later, 300, 3));
        EXPECT_LE(engine->memory().kv_bytes_peak, estimate.kv_bytes_peak) << method << " " << chunk << " " << n_later;
      }
    }
  }
}

}  // namespace
}  // namespace winnow::test
