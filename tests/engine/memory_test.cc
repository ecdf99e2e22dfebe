// A session's memory statistics equal the bytes of its pages, and freed memory is returned.
#include <gtest/gtest.h>

#include "engine/engine_test_support.h"
#include "model/tiny_architectures.h"

namespace winnow::test {
namespace {

constexpr int kCachedLayers = 3;
constexpr int kKvHeads = 2;

class MemoryTest : public testing::TestWithParam<std::string> {};

TEST_P(MemoryTest, PagesAreTheKeptEntriesRoundedUp) {
  const auto engine = Engine::create(tiny_model(), {.n_threads = 2, .n_batch = 128});
  for (const int n_tokens : {70, 333, 1000}) {
    Session session = engine->open(evicting_options(GetParam(), "40"));
    session.prefill(random_tokens(n_tokens, 300, 1));
    const CacheShape shape = session.impl().cache.shape();
    const SessionStatistics statistics = session.statistics();
    EXPECT_EQ(statistics.entries_kept, 40 * kCachedLayers * kKvHeads);
    EXPECT_EQ(statistics.bytes_in_pages, entries_in_pages(statistics) * shape.page_bytes(0));
    EXPECT_EQ(engine->memory().kv_bytes_in_use, statistics.bytes_in_pages);
    EXPECT_EQ(statistics.bytes_kept, static_cast<std::size_t>(statistics.entries_kept) * shape.entry_bytes(0));

    // The peak is at most the budget, one layer, and a page per head for rounding.
    const std::size_t rows = static_cast<std::size_t>(n_tokens) * kKvHeads * 2 * 32 * sizeof(float);
    const std::size_t one_layer = rows + static_cast<std::size_t>(n_tokens) * sizeof(std::int32_t) + 2 * 63;
    const std::size_t rounding = kCachedLayers * kKvHeads * shape.page_bytes(0);
    EXPECT_GE(statistics.staging_bytes, rows);
    EXPECT_LE(statistics.staging_bytes, one_layer) << "with positions, each array on a cache line";
    EXPECT_LE(statistics.bytes_peak, statistics.bytes_kept + one_layer + rounding) << n_tokens;
    EXPECT_GE(statistics.bytes_peak, statistics.staging_bytes);
    EXPECT_EQ(engine->memory().kv_bytes_peak, statistics.bytes_peak);

    decode_all(session, random_tokens(33, 300, 2));
    const SessionStatistics later = session.statistics();
    EXPECT_EQ(later.entries_kept, (40 + 33) * kCachedLayers * kKvHeads);
    EXPECT_EQ(later.bytes_in_pages, entries_in_pages(later) * shape.page_bytes(0));
    session.clear();
    EXPECT_EQ(engine->memory().kv_bytes_in_use, 0U);
  }
}

TEST_P(MemoryTest, ChunksNeedTheBudgetAndOneChunk) {
  const auto engine = Engine::create(tiny_model(), {.n_threads = 2});
  SessionOptions options = evicting_options(GetParam(), "40");
  options.prefill_chunk = 64;
  std::size_t peak = 0;
  for (const int n_tokens : {300, 1500}) {
    Session session = engine->open(options);
    session.prefill(random_tokens(n_tokens, 300, 1));
    const std::size_t bound = (40 + 64) * kCachedLayers * kKvHeads * session.impl().cache.shape().entry_bytes(0) +
                              2 * kCachedLayers * kKvHeads * session.impl().cache.shape().page_bytes(0);
    EXPECT_LE(session.statistics().bytes_peak, bound);
    if (peak != 0) {
      EXPECT_LE(session.statistics().bytes_peak,
                peak + kCachedLayers * kKvHeads * session.impl().cache.shape().page_bytes(0));
    }
    peak = session.statistics().bytes_peak;
  }
}

// A share of the full cache's bytes relates to its bytes in f16, as a budget in per cent of the bytes does.
TEST(Memory, TheFullCacheCountsInF16WhateverIsStored) {
  const auto engine = Engine::create(tiny_model(), {.n_threads = 2});
  const std::vector<Token> prompt = random_tokens(600, 300, 1);
  constexpr std::size_t kEntryBytes = 2 * 32 * 2 + 2;  // keys, values, position
  for (const EntryType type : {EntryType::kF32, EntryType::kF16, EntryType::kQ8_0, EntryType::kR4}) {
    SessionOptions options{.key_type = type, .value_type = type};
    Session session = engine->open(options);
    session.prefill(prompt);
    const SessionStatistics statistics = session.statistics();
    EXPECT_EQ(statistics.bytes_full, prompt.size() * kCachedLayers * kKvHeads * kEntryBytes) << entry_type_name(type);
    EXPECT_EQ(statistics.bytes_kept == statistics.bytes_full, type == EntryType::kF16) << entry_type_name(type);
  }
  for (const char* budget : {"20%bytes", "10%bytes"}) {
    SessionOptions options;
    options.eviction = EvictionOptions::parse("auto:repeat=always");
    options.budget = Budget::parse(budget);
    Session session = engine->open(options);
    session.prefill(prompt);
    const SessionStatistics statistics = session.statistics();
    const double share = static_cast<double>(statistics.bytes_kept) / static_cast<double>(statistics.bytes_full);
    EXPECT_LE(share, options.budget->amount) << budget;
    EXPECT_GT(share, 0.9 * options.budget->amount) << budget;
    EXPECT_GT(statistics.entries_kept * 10, statistics.entries_full * 2) << budget << ": more entries in fewer bits";
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, MemoryTest,
                         testing::Values("streaming-llm", "snapkv:window=8", "pyramidkv:window=8",
                                         "ada-snapkv:window=8", "lava:window=8", "random:window=8"),
                         method_test_name);

TEST(PoolTest, PagesComeBackWhenSessionsDie) {
  const auto engine = Engine::create(tiny_model(), {.n_threads = 2});
  std::size_t resident = 0;
  for (int round = 0; round < 3; ++round) {
    {
      Session full = engine->open(full_options());
      full.prefill(random_tokens(500, 300, 1));
      EXPECT_EQ(full.statistics().bytes_in_pages,
                16U * kCachedLayers * kKvHeads * full.impl().cache.shape().page_bytes(0));
      Session fork = full.fork();
      decode_all(fork, random_tokens(40, 300, 2));
      Session evicting = engine->open(evicting_options("snapkv:window=8", "40"));
      evicting.prefill(random_tokens(400, 300, 3));
      if (round == 0) resident = engine->memory().kv_bytes_resident;
      EXPECT_LE(engine->memory().kv_bytes_resident, resident + resident / 10);  // pages are used again
    }
    EXPECT_EQ(engine->memory().kv_bytes_in_use, 0U);
    EXPECT_EQ(engine->memory().kv_bytes_resident, 0U);
  }
  EXPECT_GT(engine->memory().kv_bytes_peak, 0U);
  engine->reset_peak();
  EXPECT_EQ(engine->memory().kv_bytes_peak, 0U);
}

// A graph for each number of sequences, with the logits of all, would take gigabytes with a large vocabulary.
TEST(GraphMemoryTest, IsThatOfOneStepOfTheLastWidth) {
  constexpr int kVocab = 5000;
  for (const char* architecture : {"llama", "qwen2", "qwen3", "gemma"}) {
    for (const int n_kv_head : {1, 4}) {
      const auto engine = Engine::create(
          tiny_model({.architecture = architecture, .n_kv_head = n_kv_head, .n_vocab = kVocab}), {.n_threads = 2});
      const std::size_t per_sequence = step_bytes_per_sequence(engine->model()->info());
      const std::size_t without = engine->memory().graph_bytes;
      std::vector<Session> sessions;
      std::vector<Session*> step;
      for (int i = 0; i < 12; ++i) {
        sessions.push_back(engine->open(full_options()));
        // The sessions have heads of one slice and of several.
        sessions.back().impl().cache.extend(0, 0, 1 + 150 * i, 0);
        sessions.back().impl().tokens.resize(static_cast<std::size_t>(1 + 150 * i));
      }
      for (Session& session : sessions) step.push_back(&session);
      const auto bytes_of_step = [&](std::size_t n) {
        engine->decode(std::span(step).first(n), std::vector<Token>(n, 5));
        return engine->memory().graph_bytes - without;
      };
      const std::size_t one = bytes_of_step(1);
      EXPECT_GE(one, kVocab * sizeof(float));
      for (const std::size_t n : {2UL, 3UL, 7UL, 12UL}) {
        const std::size_t several = bytes_of_step(n);
        EXPECT_GE(several, n * kVocab * sizeof(float));
        EXPECT_LE(several, one + (n - 1) * per_sequence) << architecture << ", " << n << " sequences";
      }
      EXPECT_LE(bytes_of_step(1), one) << architecture;
    }
  }
}

// The bound per sequence also holds for layers of every kind.
TEST(GraphMemoryTest, IsPromisedForLayersOfEveryKind) {
  for (const char* architecture :
       {"gemma3", "gemma4", "lfm2", "qwen35", "qwen35moe", "granitehybrid", "gpt-oss", "deepseek2"}) {
    const TinyModelOptions options = tiny_options(architecture);
    const auto engine = Engine::create(tiny_model(options), {.n_threads = 2});
    const std::size_t per_sequence = step_bytes_per_sequence(engine->model()->info());
    std::vector<Session> sessions;
    std::vector<Session*> step;
    for (int i = 0; i < 12; ++i) {
      sessions.push_back(engine->open(full_options()));
      sessions.back().prefill(random_tokens(3, options.n_vocab, 1));
    }
    for (Session& session : sessions) step.push_back(&session);
    const auto bytes_of_step = [&](std::size_t n) {
      engine->decode(std::span(step).first(n), std::vector<Token>(n, 5));
      return engine->memory().graph_bytes;
    };
    const std::size_t one = bytes_of_step(1);
    for (const std::size_t n : {3UL, 12UL}) {
      EXPECT_LE(bytes_of_step(n), one + (n - 1) * per_sequence) << architecture << ", " << n << " sequences";
    }
  }
}

TEST(PoolTest, ASessionMayOutliveTheLastReferenceToItsEngine) {
  auto engine = Engine::create(tiny_model(), {.n_threads = 2});
  Session session = engine->open(full_options());
  session.prefill(random_tokens(40, 300, 1));
  engine.reset();
  session.decode(5);
  EXPECT_EQ(session.n_tokens(), 41);
}

}  // namespace
}  // namespace winnow::test
