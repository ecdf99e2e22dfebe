// Tests the factors on queries and keys: what they are, and that nothing but codes can tell that they are there.
#include "model/balanced_pairs.h"

#include <ggml.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "engine/engine_test_support.h"
#include "expect_error.h"
#include "model/model_impl.h"

namespace winnow::test {
namespace {

constexpr int kInputs = 8, kHeadDim = 8, kKvHeads = 2, kHeads = 4;

// A layer whose matrices give outputs of mean square 1, and whose biases the tests set.
class BalancedPairsTest : public testing::Test {
 protected:
  BalancedPairsTest()
      : context_(ggml_init({.mem_size = 1 << 16, .mem_buffer = nullptr, .no_alloc = false}), ggml_free) {
    spec_.n_head = kHeads, spec_.n_kv_head = kKvHeads, spec_.key_dim = spec_.value_dim = kHeadDim;
    spec_.rope = {.mode = GGML_ROPE_TYPE_NEOX, .n_dims = kHeadDim, .base = 1e6F};
    weights_.attn_norm.weight = filled(ggml_new_tensor_1d(context_.get(), GGML_TYPE_F32, kInputs), 2);
    const float one = 0.5F / std::sqrt(static_cast<float>(kInputs));
    weights_.wq = filled(ggml_new_tensor_2d(context_.get(), GGML_TYPE_F32, kInputs, kHeads * kHeadDim), one);
    weights_.wk = filled(ggml_new_tensor_2d(context_.get(), GGML_TYPE_F32, kInputs, kKvHeads * kHeadDim), one);
    weights_.bq = filled(ggml_new_tensor_1d(context_.get(), GGML_TYPE_F32, kHeads * kHeadDim), 0);
    weights_.bk = filled(ggml_new_tensor_1d(context_.get(), GGML_TYPE_F32, kKvHeads * kHeadDim), 0);
  }

  static ggml_tensor* filled(ggml_tensor* tensor, float x) {
    std::fill_n(static_cast<float*>(tensor->data), ggml_nelements(tensor), x);
    return tensor;
  }
  float& key_bias(int head, int i) { return static_cast<float*>(weights_.bk->data)[head * kHeadDim + i]; }

  std::unique_ptr<ggml_context, decltype(&ggml_free)> context_;
  LayerSpec spec_;
  LayerWeights weights_;
};

TEST_F(BalancedPairsTest, ABiasThatTurnsIsMadeSmall) {
  key_bias(1, 4) = 64;  // of the pair (0, 4), which turns by a radian a token
  const BalancedPairs pairs = balanced_pairs(spec_, weights_);
  ASSERT_EQ(pairs.key.size(), std::size_t{kKvHeads * kHeadDim});
  ASSERT_EQ(pairs.query.size(), std::size_t{kHeads * kHeadDim});
  for (int h = 0; h < kKvHeads; ++h) {
    for (int i = 0; i < kHeadDim; ++i) {
      // The least error is at d^2 = |q| / |k| = sqrt(2) / 64.
      const float d = h == 1 && i % 4 == 0 ? 0.125F : 1;
      EXPECT_EQ(pairs.key[static_cast<std::size_t>(h * kHeadDim + i)], d) << h << ", " << i;
      for (int g = 0; g < kHeads / kKvHeads; ++g) {
        const int head = h * kHeads / kKvHeads + g;
        EXPECT_EQ(pairs.query[static_cast<std::size_t>(head * kHeadDim + i)], 1 / d) << head << ", " << i;
      }
    }
  }
}

TEST_F(BalancedPairsTest, PairsAreRopes) {
  key_bias(0, 1) = 64;
  spec_.rope.mode = GGML_ROPE_TYPE_NORMAL;  // pairs (0, 1), (2, 3), ...
  const BalancedPairs pairs = balanced_pairs(spec_, weights_);
  EXPECT_EQ(pairs.key[0], 0.125F);
  EXPECT_EQ(pairs.key[1], 0.125F);
  EXPECT_EQ(pairs.key[4], 1);
}

TEST_F(BalancedPairsTest, WhatTheOriginTakesOutDoesNotCount) {
  key_bias(0, 3) = 64;  // of the pair (3, 7), which turns once in 200,000 tokens
  EXPECT_TRUE(balanced_pairs(spec_, weights_).key.empty());
}

TEST_F(BalancedPairsTest, NoneWithoutBiasesOrBehindNorms) {
  key_bias(0, 0) = 64;
  EXPECT_FALSE(balanced_pairs(spec_, weights_).key.empty());
  spec_.qk_norm = QkNorm::kHead;
  EXPECT_TRUE(balanced_pairs(spec_, weights_).key.empty());
  spec_.qk_norm = QkNorm::kNone;
  weights_.bk = nullptr;
  EXPECT_TRUE(balanced_pairs(spec_, weights_).key.empty());
}

TEST_F(BalancedPairsTest, FactorsHaveBounds) {
  key_bias(0, 0) = 1e30F;
  filled(weights_.wq, 0);
  key_bias(1, 0) = 1e12F;
  for (const float d : balanced_pairs(spec_, weights_).key) {
    EXPECT_GE(d, 1.0F / 64);
    EXPECT_LE(d, 64);
  }
}

// Two engines of one file's models, of which the second has no factors.
class WithoutFactorsTest : public testing::Test {
 protected:
  WithoutFactorsTest() {
    const TinyModelOptions options = with_balanced_layers();
    const TinyModel file(options);
    with_ = Engine::create(Model::load(file.path()), {.n_threads = 1, .n_batch = 48});
    without_ = Engine::create(Model::load(file.path()), {.n_threads = 1, .n_batch = 48});
    int n_balanced = 0;
    for (LayerWeights& layer : without_->model()->impl().weights.layers) {
      n_balanced += layer.k_scales != nullptr;
      layer.q_scales = layer.k_scales = nullptr;
    }
    EXPECT_GT(n_balanced, 0);
    prompt_ = random_tokens(90, options.n_vocab, 1);
  }

  std::shared_ptr<Engine> with_, without_;
  std::vector<Token> prompt_;
};

TEST_F(WithoutFactorsTest, EveryMethodKeepsTheSameEntries) {
  for (const std::string& method : session_methods()) {
    SCOPED_TRACE(method);
    std::vector<std::vector<float>> logits;
    std::vector<std::vector<std::int32_t>> kept[2];  // positions by layer and head
    for (const auto& engine : {with_, without_}) {
      SessionOptions options = evicting_options(method, "30");
      options.key_type = options.value_type = EntryType::kF32;
      Session session = engine->open(options);
      session.prefill(prompt_);
      session.decode(3);
      logits.push_back(logits_of(session));
      const ModelInfo& info = engine->model()->info();
      for (std::size_t l = 0; l < info.layers.size(); ++l) {
        for (int h = 0; h < info.layers[l].n_kv_head; ++h) {
          kept[logits.size() - 1].push_back(session.positions(static_cast<int>(l), h));
        }
      }
    }
    EXPECT_EQ(kept[0], kept[1]);
    EXPECT_LT(max_difference(logits[0], logits[1]), 1e-4);
  }
}

TEST_F(WithoutFactorsTest, FilesOfEarlierVersionsAreRefused) {
  const TemporaryDirectory directory;
  Session session = without_->open(full_options());
  session.prefill(prompt_);
  for (LayerWeights& layer : without_->model()->impl().weights.layers) layer.bk = nullptr;  // as if none had factors
  session.save(directory.file("old"));
  expect_error(ErrorCode::kBadFile, "was saved by an earlier version of winnow",
               [&] { with_->load_session(directory.file("old")); });
  Session other = with_->open(full_options());
  other.prefill(prompt_);
  other.save(directory.file("new"));
  EXPECT_EQ(max_difference(logits_of(session),
                           [&] {
                             Session loaded = with_->load_session(directory.file("new"));
                             return logits_of(loaded);
                           }()),
            0);
}

}  // namespace
}  // namespace winnow::test
