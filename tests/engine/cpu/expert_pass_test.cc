// Reads of experts' weights: a prompt reads every expert once per layer, and decoding reads the chosen ones.
#include "engine/cpu/expert_pass.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/engine_test_support.h"
#include "model/tiny_architectures.h"

namespace winnow::test {
namespace {

constexpr int kExpertLayers = 2, kExperts = 64, kUsed = 8;

TinyModelOptions sixty_four_experts() {
  TinyModelOptions options = tiny_options("qwen3moe");
  options.n_layer = kExpertLayers, options.n_expert = kExperts, options.n_expert_used = kUsed;
  options.n_head = 2, options.n_kv_head = 1, options.head_dim = 16, options.n_embd = 32, options.n_ff = 24;
  options.n_ctx = 8192;
  return options;
}

std::uint64_t expert_bytes(const TinyModelOptions& o) {
  return 3 * sizeof(float) * static_cast<std::uint64_t>(o.n_embd * o.n_ff);
}

TEST(ExpertPassTest, APromptReadsEveryExpertOnce) {
  const TinyModelOptions options = sixty_four_experts();
  const auto engine = Engine::create(tiny_model(options), {.n_threads = 2, .n_batch = 512});
  Session session = engine->open(evicting_options("snapkv:window=8", "64"));
  session.prefill(random_tokens(4096, options.n_vocab, 1));
  // Every expert has rows: of 4,096 tokens, 512 on average.
  EXPECT_EQ(cpu_executor(engine->impl()).compute().expert_bytes_read(),
            kExpertLayers * kExperts * expert_bytes(options));
}

TEST(ExpertPassTest, ATokenReadsTheExpertsThatItTakes) {
  const TinyModelOptions options = sixty_four_experts();
  const auto engine = Engine::create(tiny_model(options), {.n_threads = 2});
  Session session = engine->open(full_options());
  session.prefill(random_tokens(1, options.n_vocab, 1));
  EXPECT_EQ(cpu_executor(engine->impl()).compute().expert_bytes_read(), kExpertLayers * kUsed * expert_bytes(options));
  session.decode(7);
  EXPECT_EQ(cpu_executor(engine->impl()).compute().expert_bytes_read(),
            2 * kExpertLayers * kUsed * expert_bytes(options));
}

// An expert with more rows than a step takes is read again for the next rows, which changes no result.
TEST(ExpertPassTest, RowsOfAnExpertMayComeInSeveralSteps) {
  for (const char* architecture : {"qwen3moe", "gpt-oss", "granitehybrid"}) {
    const TinyModelOptions options = tiny_options(architecture);
    const auto model = tiny_model(options);
    const std::vector<Token> prompt = random_tokens(300, options.n_vocab, 1);
    const auto logits_of = [&](int n_batch) {
      const auto engine = Engine::create(model, {.n_threads = 2, .n_batch = n_batch});
      Session session = engine->open(full_options());
      session.prefill(prompt);
      return std::pair(std::vector<float>(session.logits().begin(), session.logits().end()),
                       cpu_executor(engine->impl()).compute().expert_bytes_read());
    };
    const auto [whole, once] = logits_of(512);
    const auto [pieces, often] = logits_of(32);
    EXPECT_GT(often, once) << architecture;
    EXPECT_LT(max_difference(whole, pieces), 1e-3) << architecture;
  }
}

}  // namespace
}  // namespace winnow::test
