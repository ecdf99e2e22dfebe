// Embeddings: the states that are pooled, the options, and the memory.
#include "winnow/embedding.h"

#include <gguf.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "engine/engine_test_support.h"
#include "expect_error.h"
#include "model/tiny_architectures.h"

namespace winnow::test {
namespace {

using Rows = std::vector<std::vector<float>>;

// Returns the hidden states that the output reads, of a session that keeps everything. The first n_first tokens are the
// prompt, and the others a turn.
Rows hidden_states(Engine& engine, std::span<const Token> tokens, std::size_t n_first) {
  Session session = engine.open();
  Rows rows;
  PrefillOptions callbacks;
  callbacks.on_hidden = [&](std::int32_t position, std::span<const float> row) {
    EXPECT_EQ(position, static_cast<std::int32_t>(rows.size()));
    rows.emplace_back(row.begin(), row.end());
  };
  session.prefill(tokens.first(n_first), callbacks);
  if (n_first < tokens.size()) session.append(tokens.subspan(n_first), callbacks);
  return rows;
}

std::vector<float> mean(const Rows& rows) {
  std::vector<float> result(rows[0].size());
  for (std::size_t i = 0; i < result.size(); ++i) {
    double sum = 0;
    for (const std::vector<float>& row : rows) sum += static_cast<double>(row[i]);
    result[i] = static_cast<float>(sum / static_cast<double>(rows.size()));
  }
  return result;
}

TEST(Embedding, PoolsTheHiddenStatesThatTheOutputReads) {
  const auto engine = Engine::create(tiny_model(), {.n_threads = 1, .n_batch = 32});
  const std::vector<Token> tokens = random_tokens(150, 300, 3);
  const Rows rows = hidden_states(*engine, tokens, tokens.size());
  ASSERT_EQ(rows.size(), tokens.size());
  const EmbeddingOptions raw{.pooling = Pooling::kMean, .is_normalised = false, .on_progress = {}};
  EmbeddingOptions options = raw;
  EXPECT_EQ(embed(*engine, tokens, options), mean(rows));
  options.pooling = Pooling::kCls;
  EXPECT_EQ(embed(*engine, tokens, options), rows.front());
  options.pooling = Pooling::kLast;
  EXPECT_EQ(embed(*engine, tokens, options), rows.back());
  options = raw;
  options.is_normalised = true;
  const std::vector<float> unit = embed(*engine, tokens, options);
  EXPECT_NEAR(std::inner_product(unit.begin(), unit.end(), unit.begin(), 0.0), 1, 1e-6);
  // A turn's rows equal those of one prompt.
  EXPECT_LT(max_difference(mean(hidden_states(*engine, tokens, 90)), mean(rows)), 1e-4);
}

TEST(Embedding, LogitsOnlyWhereTheyAreAskedFor) {
  const auto engine = Engine::create(tiny_model(), {.n_threads = 1});
  const std::vector<Token> tokens = random_tokens(20, 300, 3);
  Session session = engine->open(full_options());
  int n_hidden = 0, n_logits = 0;
  PrefillOptions callbacks;
  callbacks.on_hidden = [&](std::int32_t, std::span<const float>) { ++n_hidden; };
  session.prefill(tokens, callbacks);
  EXPECT_EQ(n_hidden, 20);
  expect_error(ErrorCode::kInvalidArgument, "", [&] { session.logits(); });
  session.decode(5);  // the session goes on
  EXPECT_EQ(session.logits().size(), 300U);
  callbacks.on_logits = [&](std::int32_t, std::span<const float>) { ++n_logits; };
  session.append(tokens, callbacks);
  EXPECT_EQ(n_logits, 20);
  EXPECT_EQ(session.logits().size(), 300U);
}

TEST(Embedding, OneTokenAndEveryLengthAroundABatch) {
  const auto engine = Engine::create(tiny_model(), {.n_threads = 1, .n_batch = 32});
  for (const int n : {1, 2, 31, 32, 33, 64, 65}) {
    const std::vector<Token> tokens = random_tokens(n, 300, 3);
    EXPECT_EQ(embed(*engine, tokens, {.is_normalised = false}), mean(hidden_states(*engine, tokens, tokens.size())))
        << n;
  }
  expect_error(ErrorCode::kInvalidArgument, "", [&] { embed(*engine, {}); });
}

TEST(Embedding, HoldsOneLayerOfKeysAndValues) {
  const auto engine = Engine::create(tiny_model({.n_layer = 8}), {.n_threads = 1, .n_batch = 64});
  const std::vector<Token> tokens = random_tokens(1500, 300, 3);
  engine->reset_peak();
  embed(*engine, tokens);
  const std::size_t peak = engine->memory().kv_bytes_peak;
  EXPECT_EQ(engine->memory().kv_bytes_in_use, 0U);
  Session session = engine->open(embedding_session(*engine->model()));
  const std::size_t staging = engine->estimate(session.options(), 1500, 0).kv_bytes_staging;
  EXPECT_LE(peak, engine->estimate(session.options(), 1500, 0).kv_bytes_peak);
  EXPECT_LT(peak, 2 * staging);  // there are eight layers
}

TEST(Embedding, ModelsWithoutLayersToCut) {
  for (const TinyModelOptions& options :
       {TinyModelOptions{.architecture = "gemma3", .sliding_window = 16}, TinyModelOptions{.architecture = "qwen2"}}) {
    const auto engine = Engine::create(tiny_model(options), {.n_threads = 1, .n_batch = 32});
    const std::vector<Token> tokens = random_tokens(100, 300, 3);
    const std::vector<float> whole = mean(hidden_states(*engine, tokens, tokens.size()));
    EXPECT_LT(max_difference(embed(*engine, tokens, {.is_normalised = false}), whole), 1e-4) << options.architecture;
  }
}

TEST(Embedding, TheFileSaysHowItIsPooled) {
  EXPECT_EQ(default_pooling(*tiny_model()), Pooling::kMean);
  const auto with_type = [](std::uint32_t type) {
    TinyModelOptions options;
    options.edit_metadata = [type](gguf_context* file) { gguf_set_val_u32(file, "llama.pooling_type", type); };
    return tiny_model(options);
  };
  EXPECT_EQ(default_pooling(*with_type(1)), Pooling::kMean);
  EXPECT_EQ(default_pooling(*with_type(2)), Pooling::kCls);
  EXPECT_EQ(default_pooling(*with_type(3)), Pooling::kLast);
  EXPECT_EQ(default_pooling(*with_type(99)), Pooling::kMean);
  EXPECT_EQ(parse_pooling("last"), Pooling::kLast);
  expect_error(ErrorCode::kInvalidArgument, "mean, cls or last", [&] { parse_pooling("none"); });
}

TEST(Embedding, CanBeStopped) {
  const auto engine = Engine::create(tiny_model(), {.n_threads = 1, .n_batch = 16});
  EmbeddingOptions options;
  options.on_progress = [](std::int64_t done, std::int64_t) { return done < 30; };
  expect_error(ErrorCode::kCancelled, "", [&] { embed(*engine, random_tokens(100, 300, 3), options); });
  EXPECT_EQ(engine->memory().kv_bytes_in_use, 0U);
}

}  // namespace
}  // namespace winnow::test
