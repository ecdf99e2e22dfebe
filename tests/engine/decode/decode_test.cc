// Steps of several sequences at once, entry types, generation.
#include <ggml-cpu.h>
#include <gtest/gtest.h>

#include "engine/engine_test_support.h"
#include "kernels/simd/isa.h"

namespace winnow::test {
namespace {

// Returns the largest difference to a sequence alone. With tinyBLAS (GGML_LLAMAFILE) ggml multiplies one row of
// float32, float16, q8_0 or q4_0 in another order than several rows; scripts/setup.sh builds ggml without it, and then
// results are equal.
double most_from_alone() { return ggml_cpu_has_llamafile() != 0 ? 1e-4 : 0.0; }

TEST(BatchTest, EverySequenceIsAsAlone) {
  for (const char* architecture : {"llama", "qwen2", "qwen3"}) {
    const auto engine = Engine::create(tiny_model({.architecture = architecture, .n_embd = 128, .seed = 5}),
                                       {.n_threads = 2, .n_batch = 64});
    const std::vector<SessionOptions> options = {
        full_options(),
        evicting_options("snapkv:window=8", "32"),
        evicting_options("lava:window=4", "20%"),
        evicting_options("streaming-llm", "70"),
        evicting_options("ada-snapkv:window=8", "9%"),
    };
    std::vector<Session> alone;
    std::vector<Session> together;
    std::vector<Session*> step;
    for (std::size_t i = 0; i < options.size(); ++i) {
      alone.push_back(engine->open(options[i]));
      alone.back().prefill(random_tokens(30 + 55 * static_cast<int>(i), 300, static_cast<std::uint32_t>(i)));
      together.push_back(alone.back().fork());
    }
    for (Session& session : together) step.push_back(&session);
    for (int n = 0; n < 40; ++n) {
      std::vector<Token> tokens;
      for (std::size_t i = 0; i < alone.size(); ++i) {
        tokens.push_back(argmax(alone[i].logits()));
        EXPECT_EQ(tokens.back(), argmax(together[i].logits())) << "sequence " << i << ", step " << n;
        alone[i].decode(tokens.back());
      }
      engine->decode(step, tokens);
      for (std::size_t i = 0; i < alone.size(); ++i) {
        ASSERT_LE(max_difference(together[i].logits(), alone[i].logits()), most_from_alone())
            << architecture << ", sequence " << i << ", step " << n;
      }
      if (n == 20) {  // a sequence may leave
        step.pop_back();
        alone.pop_back();
      }
    }
    for (std::size_t i = 0; i < alone.size(); ++i) {
      EXPECT_EQ(kept_positions(together[i]), kept_positions(alone[i]));
    }
  }
}

TEST(BatchTest, SequencesOfDifferentEntryTypes) {
  const auto engine = Engine::create(tiny_model(), {.n_threads = 2});
  std::vector<Session> alone;
  std::vector<Session> together;
  std::vector<Session*> step;
  for (const EntryType type :
       {EntryType::kF32, EntryType::kF16, EntryType::kBF16, EntryType::kQ8_0, EntryType::kQ4_0}) {
    SessionOptions options;
    options.key_type = type;
    options.value_type = type;
    alone.push_back(engine->open(options));
    alone.back().prefill(random_tokens(60, 300, 1));
    together.push_back(alone.back().fork());
  }
  for (Session& session : together) step.push_back(&session);
  const std::vector<Token> tokens = {4, 5, 6, 7, 8};
  engine->decode(step, tokens);
  for (std::size_t i = 0; i < alone.size(); ++i) {
    alone[i].decode(tokens[i]);
    EXPECT_LE(max_difference(together[i].logits(), alone[i].logits()), most_from_alone()) << i;
  }
}

// The cut of one of three sessions gets no memory: all three are fed, and only that session is left uncut.
TEST(BatchTest, AFailedCutLeavesNoHalfStep) {
  constexpr std::size_t kLimit = std::size_t{64} << 20;
  const auto engine = Engine::create(tiny_model(), {.n_threads = 2, .kv_bytes_limit = kLimit});
  SessionOptions cutting = evicting_options("snapkv:window=8", "40");
  cutting.decode_cut = SessionOptions::DecodeCut::kTotal;
  std::vector<Session> together, alone;
  std::vector<Session*> step;
  for (const SessionOptions& options : {full_options(), cutting, full_options()}) {
    together.push_back(engine->open(options));
    together.back().prefill(random_tokens(100, 300, static_cast<std::uint32_t>(together.size())));
    alone.push_back(together.back().fork());
  }
  for (Session& session : together) step.push_back(&session);
  const std::vector<Token> tokens = {5, 6, 7};
  for (std::size_t i = 0; i < alone.size(); ++i) alone[i].decode(tokens[i]);
  const std::size_t page = together[1].impl().cache.shape().page_bytes(0);
  {
    // The step copies the last page of each of the second session's 6 heads, which it shares with this fork; the cut
    // would have to copy the page before, too.
    const Session shared = together[1].fork();
    const auto taken = engine->impl().pool->reserve(kLimit - engine->memory().kv_bytes_in_use - 6 * page);
    try {
      engine->decode(step, tokens);
      ADD_FAILURE() << "the cut found memory";
    } catch (const CutError& error) {
      EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory);
      ASSERT_EQ(error.failures.size(), 1U);
      EXPECT_EQ(error.failures[0].session, 1U);
      EXPECT_EQ(error.failures[0].code, ErrorCode::kOutOfMemory);
    }
  }
  for (std::size_t i = 0; i < alone.size(); ++i) {
    EXPECT_EQ(std::vector(together[i].tokens().begin(), together[i].tokens().end()),
              std::vector(alone[i].tokens().begin(), alone[i].tokens().end()));
    EXPECT_LE(max_difference(together[i].logits(), alone[i].logits()), most_from_alone()) << i;
    EXPECT_EQ(together[i].statistics().decoded_tokens, 1);
  }
  EXPECT_GT(together[1].statistics().entries_kept, 40 * 6);
  for (const std::size_t i : {0, 2}) EXPECT_EQ(kept_positions(together[i]), kept_positions(alone[i]));
  // The next step has memory again, and its cut reaches the budget.
  engine->decode(step, tokens);
  EXPECT_EQ(together[1].statistics().entries_kept, 40 * 6);
  for (const std::size_t i : {0, 2}) {
    alone[i].decode(tokens[i]);
    EXPECT_LE(max_difference(together[i].logits(), alone[i].logits()), most_from_alone()) << i;
  }
}

TEST(ThreadsTest, NumberOfThreadsDoesNotMatter) {
  const auto model = tiny_model();
  std::vector<std::vector<float>> expected;
  for (const int n_threads : {1, 2, 3, 7}) {
    const auto engine = Engine::create(model, {.n_threads = n_threads});
    Session session = engine->open(evicting_options("snapkv:window=8", "40"));
    session.prefill(random_tokens(150, 300, 1));
    std::vector<std::vector<float>> logits = decode_all(session, random_tokens(40, 300, 2));
    if (expected.empty()) expected = logits;
    for (std::size_t i = 0; i < logits.size(); ++i) {
      EXPECT_EQ(max_difference(logits[i], expected[i]), 0) << n_threads << " threads";
    }
  }
}

struct TypeLimit {
  EntryType type;
  double max_kl;  // mean KL in nats to f32 entries, with the full cache
};

// The bounds follow from the types' widths: f16 has 11 bits, bf16 and q8_0 have 8, q4_0 has 4 (and a tiny random model
// is a hard case).
TEST(EntryTypeTest, IsNearF32) {
  const auto engine = Engine::create(tiny_model(), {.n_threads = 2, .n_batch = 32});
  const std::vector<Token> prompt = random_tokens(90, 300, 3);
  const std::vector<Token> later = random_tokens(30, 300, 4);
  // Where the processor multiplies bfloat16, attention over a prompt's entries is computed in it unless they are f32.
  const bool in_bf16 = kernels::current_bf16_unit() != kernels::Bf16Unit::kNone;
  for (const char* method : {"full", "snapkv:window=8"}) {
    const auto run = [&](EntryType type) {
      SessionOptions options = std::string(method) == "full" ? full_options() : evicting_options(method, "48");
      options.key_type = type;
      options.value_type = type;
      Session session = engine->open(options);
      std::vector<std::vector<float>> logits;
      PrefillOptions callbacks;
      callbacks.on_logits = [&](std::int32_t, std::span<const float> row) {
        logits.emplace_back(row.begin(), row.end());
      };
      session.prefill(prompt, callbacks);
      const auto decoded = decode_all(session, later);
      logits.insert(logits.end(), decoded.begin(), decoded.end());
      return logits;
    };
    const auto expected = run(EntryType::kF32);
    double before = 0;
    for (const TypeLimit limit : {TypeLimit{EntryType::kF16, in_bf16 ? 1e-3 : 1e-6}, TypeLimit{EntryType::kBF16, 1e-3},
                                  TypeLimit{EntryType::kQ8_0, 1e-3}, TypeLimit{EntryType::kQ4_0, 0.2}}) {
      const auto logits = run(limit.type);
      double kl = 0;
      for (std::size_t i = 0; i < logits.size(); ++i) {
        kl += kl_divergence(expected[i], logits[i]) / static_cast<double>(logits.size());
      }
      // Scores of rounded keys may keep other entries.
      EXPECT_LT(kl, std::string(method) == "full" ? limit.max_kl : 10 * limit.max_kl)
          << method << " " << entry_type_name(limit.type);
      EXPECT_GT(kl, 0) << entry_type_name(limit.type);
      before = kl;
    }
    EXPECT_GT(before, 1e-4);  // q4_0 is measurably coarser
  }
}

}  // namespace
}  // namespace winnow::test
