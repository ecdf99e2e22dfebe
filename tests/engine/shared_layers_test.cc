// Layers that attend to the keys and values of an earlier one (gemma4), which are stored once and stay while a prompt
// is read.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/engine_test_support.h"
#include "model/tiny_architectures.h"

namespace winnow::test {
namespace {

constexpr int kFirstShared = 4;  // of seven layers: two with a window, two without, three that share

class SharedLayers : public testing::Test {
 protected:
  std::vector<Token> tokens(int n, std::uint32_t seed) const { return random_tokens(n, options_.n_vocab, seed); }

  const TinyModelOptions options_ = tiny_options("gemma4");
  const std::shared_ptr<Engine> engine_ = Engine::create(tiny_model(options_), {.n_threads = 2, .n_batch = 48});
};

TEST_F(SharedLayers, StoreNothing) {
  Session session = engine_->open(full_options());
  session.prefill(tokens(100, 1));
  const SessionStatistics statistics = session.statistics();
  const ModelInfo& info = engine_->model()->info();
  for (int l = 0; l < info.n_layer(); ++l) {
    const auto at = static_cast<std::size_t>(l);
    const LayerInfo& layer = info.layers[at];
    EXPECT_EQ(statistics.kept[at].empty(), l >= kFirstShared) << l;
    EXPECT_EQ(layer.kind == LayerKind::kSharedAttention, l >= kFirstShared) << l;
    EXPECT_EQ(layer.kv_layer, l < kFirstShared ? l : layer.sliding_window > 0 ? 2 : 3) << l;
  }
  EXPECT_EQ(info.n_cut_heads(), 2);
}

// A turn, chunks and single tokens read the stored entries; a prompt reads its own.
TEST_F(SharedLayers, TurnsChunksAndTokensGiveThePromptsLogits) {
  const std::vector<Token> all = tokens(150, 2);
  std::vector<std::vector<float>> expected;
  Session whole = engine_->open(full_options());
  whole.prefill(all, {.on_logits = [&](std::int32_t, std::span<const float> row) {
                  expected.emplace_back(row.begin(), row.end());
                }});
  const auto [least, most] = std::minmax_element(expected.back().begin(), expected.back().end());
  const double range = *most - *least;
  for (const std::size_t n_first : {1UL, 40UL, 110UL}) {
    Session session = engine_->open(full_options());
    session.prefill(std::span(all).first(n_first));
    std::vector<std::vector<float>> later;
    session.append(std::span(all).subspan(n_first, 30), {.on_logits = [&](std::int32_t, std::span<const float> row) {
                     later.emplace_back(row.begin(), row.end());
                   }});
    for (std::vector<float>& row : decode_all(session, std::span(all).subspan(n_first + 30))) later.push_back(row);
    ASSERT_EQ(later.size() + n_first, expected.size());
    for (std::size_t i = 0; i < later.size(); ++i) {
      // GELU's table turns a last bit into 2^-11, in any of the layers: see docs/models.md.
      ASSERT_LT(max_difference(later[i], expected[n_first + i]), 2e-3 * range) << n_first << " " << i;
    }
  }
}

// With everything kept a cut changes nothing, whatever the method looks at; KVzip's rows end before the layers that
// share.
TEST_F(SharedLayers, ACutThatKeepsAllChangesNothing) {
  const std::vector<Token> prompt = tokens(120, 3), later = tokens(20, 4);
  Session full = engine_->open(full_options());
  full.prefill(prompt);
  const std::vector<std::vector<float>> expected = decode_all(full, later);
  for (const char* method : {"snapkv:window=8", "kvzip", "lava:window=8", "auto"}) {
    SCOPED_TRACE(method);
    SessionOptions options = evicting_options(method, "100%");
    Session session = engine_->open(options);
    session.prefill(prompt);
    EXPECT_EQ(decode_all(session, later), expected);
  }
}

TEST_F(SharedLayers, EstimatesHold) {
  for (const char* method : {"", "snapkv:window=8", "kvzip", "lava:window=8"}) {
    for (const int chunk : {0, 64}) {
      SCOPED_TRACE(std::string(method) + " " + std::to_string(chunk));
      const bool evicts = *method != 0;
      if (chunk > 0 && (!evicts || std::string(method) == "kvzip")) continue;
      SessionOptions options = evicts ? evicting_options(method, "32") : full_options();
      options.prefill_chunk = chunk;
      const MemoryEstimate estimate = engine_->estimate(options, 250, 60);
      Session session = engine_->open(options);
      engine_->reset_peak();
      session.prefill(tokens(250, 2));
      for (const Token token : tokens(60, 3)) session.decode(token);
      EXPECT_LE(session.statistics().bytes_peak, estimate.kv_bytes_peak);
      EXPECT_GE(2 * session.statistics().bytes_peak, estimate.kv_bytes_peak);
    }
  }
}

}  // namespace
}  // namespace winnow::test
