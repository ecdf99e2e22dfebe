// Prompts of 16K tokens (with sanitizers 4K) on models with several kinds of layers, which are narrow so that they cost
// little: memory is freed, and estimates hold.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/engine_test_support.h"
#include "model/tiny_architectures.h"
#include "sanitizers.h"

namespace winnow::test {
namespace {

constexpr int kTokens = kHasSanitizers ? 4096 : 16384;

TinyModelOptions narrow(const char* architecture) {
  TinyModelOptions options = tiny_options(architecture);
  options.n_head = 2, options.n_kv_head = 1, options.head_dim = 16;
  options.n_embd = 32, options.n_ff = 48, options.n_ctx = 2 * kTokens;
  return options;
}

std::size_t pages_of(std::int64_t n) { return static_cast<std::size_t>((n + kPageEntries - 1) / kPageEntries); }

// Five of six layers see a thirty-second of the tokens.
TEST(LongPrompt, OfSlidingLayersTakesFullLayersAndWindows) {
  constexpr int kWindow = kTokens / 32;
  TinyModelOptions options = narrow("gemma3");
  options.n_layer = 6, options.sliding_window = kWindow;
  const auto engine = Engine::create(tiny_model(options), {.n_threads = 2});
  const std::vector<Token> tokens = random_tokens(kTokens + 8, options.n_vocab, 1);
  Session session = engine->open(full_options());
  session.prefill(std::span(tokens).first(kTokens));
  const CacheShape& shape = session.impl().cache.shape();
  std::size_t whole = 0, windows = 0;
  for (int l = 0; l < shape.n_layer(); ++l) {
    const bool is_full = shape.layer(l).sliding_window == 0;
    EXPECT_EQ(session.statistics().kept[static_cast<std::size_t>(l)].front(), is_full ? kTokens : kWindow);
    (is_full ? whole : windows) += pages_of(is_full ? kTokens : kWindow) * shape.page_bytes(l);
  }
  EXPECT_EQ(session.statistics().bytes_in_pages, whole + windows);
  EXPECT_EQ(engine->memory().kv_bytes_in_use, whole + windows);
  EXPECT_LT(windows, whole / 5);  // five windows against one whole prompt

  // While a prompt passes through a layer all of its entries are there: the last rows equal those of the same tokens
  // that are decoded after windows freed entries.
  std::vector<std::vector<float>> expected, logits;
  Session at_once = engine->open(full_options());
  at_once.prefill(tokens, {.on_logits = [&](std::int32_t position, std::span<const float> row) {
                    if (position >= kTokens) expected.emplace_back(row.begin(), row.end());
                  }});
  logits = decode_all(session, std::span(tokens).subspan(kTokens));
  ASSERT_EQ(expected.size(), logits.size());
  std::vector<double> distances;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    distances.push_back(kl_divergence(expected[i], logits[i]));
    EXPECT_LT(distances.back(), 1e-6) << i;
    EXPECT_LT(max_difference(expected[i], logits[i]), 1e-3) << i;
  }
  // Sums in another order differ in their last bits. Sometimes such a bit changes the float16 that a new entry's number
  // is rounded to, and that row differs a thousand times more; most rows do not.
  std::sort(distances.begin(), distances.end());
  EXPECT_LT(distances[distances.size() / 2], 1e-11);
}

// Three of four layers carry a state; the others keep a tenth of their entries.
TEST(LongPrompt, OfRecurrentLayersTakesWhatIsPromised) {
  for (const char* architecture : {"qwen35", "granitehybrid"}) {
    SCOPED_TRACE(architecture);
    TinyModelOptions options = narrow(architecture);
    options.n_layer = 4;
    if (!options.layers.empty()) options.layers.resize(3);
    for (TinyLayer& layer : options.layers) {
      layer = {.n_head = 2, .n_kv_head = std::min(layer.n_kv_head, 1), .key_dim = 16, .value_dim = 16, .n_ff = 48};
    }
    const auto engine = Engine::create(tiny_model(options), {.n_threads = 2});
    const SessionOptions tenth = evicting_options("snapkv:window=16", "10%");
    const MemoryEstimate estimate = engine->estimate(tenth, kTokens, 16);
    Session session = engine->open(tenth);
    session.prefill(random_tokens(kTokens, options.n_vocab, 2));
    const std::int64_t n_heads = engine->model()->info().n_cut_heads();
    EXPECT_EQ(session.statistics().entries_kept, (kTokens * n_heads + 5) / 10);
    const std::size_t peak = engine->memory().kv_bytes_peak;
    EXPECT_LE(peak, estimate.kv_bytes_peak);
    EXPECT_GE(peak + peak / 10, estimate.kv_bytes_peak);  // and at most a tenth more
    EXPECT_EQ(estimate.recurrent_bytes, 2 * engine->model()->info().state_bytes());
    EXPECT_LE(session.statistics().hidden_bytes, estimate.hidden_bytes + 4096);

    Session fork = session.fork();
    const TemporaryDirectory directory;
    session.save(directory.file("session"));
    Session loaded = engine->load_session(directory.file("session"));
    const std::vector<Token> later = random_tokens(16, options.n_vocab, 3);
    const std::vector<std::vector<float>> expected = decode_all(session, later);
    EXPECT_EQ(decode_all(fork, later), expected);
    EXPECT_EQ(decode_all(loaded, later), expected);
  }
}

}  // namespace
}  // namespace winnow::test
