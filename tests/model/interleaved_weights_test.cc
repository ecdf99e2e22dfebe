// Interleaved weights compared with the same weights in the file's layout.
#include "model/interleaved_weights.h"

#include <ggml.h>
#include <gtest/gtest.h>

#include "kernels/products/quantised_product.h"
#include "kernels/simd/isa.h"
#include "model/model_impl.h"
#include "model/tiny_model.h"
#include "winnow/session.h"

namespace winnow::test {
namespace {

using kernels::WeightLayout;

class InterleavedWeightsTest : public testing::TestWithParam<ggml_type> {
 protected:
  void SetUp() override {
    if (!kernels::has_quantised_products()) GTEST_SKIP() << "not on this instruction set";
  }

  static TinyModelOptions options() {
    TinyModelOptions options{.n_head = 4, .head_dim = 64, .n_embd = 256, .n_ff = 512};
    options.weight_type = options.expert_weight_type = GetParam();
    return options;
  }
};

std::vector<float> row_of(const ggml_tensor* weight, std::int64_t i) {
  std::vector<float> row(static_cast<std::size_t>(weight->ne[0]));
  dequantize_row(weight, i, row.data());
  return row;
}

std::vector<Token> some_tokens(int n) {
  std::vector<Token> tokens;
  for (int i = 0; i < n; ++i) tokens.push_back((i * 37 + 11) % 290);
  return tokens;
}

TEST_P(InterleavedWeightsTest, HaveTheFilesRows) {
  const TinyModel file(options());
  const auto model = Model::load(file.path());
  const LayerWeights before = model->impl().weights.layers[1];
  model->impl().interleave(0, 3, true, 2);
  const LayerWeights& after = model->impl().weights.layers[1];
  for (const auto& [from, to] : {std::pair{before.wq, after.wq}, {before.wo, after.wo}, {before.down, after.down}}) {
    ASSERT_EQ(layout_of(from), WeightLayout::kRows);
    ASSERT_EQ(layout_of(to), WeightLayout::kInterleaved);
    for (std::int64_t i = 0; i < from->ne[1]; ++i) ASSERT_EQ(row_of(from, i), row_of(to, i)) << "row " << i;
  }
}

TEST_P(InterleavedWeightsTest, AreMadeOnceAndOfTheLayersInQuestion) {
  const TinyModel file(options());
  const auto model = Model::load(file.path());
  const Weights& weights = model->impl().weights;
  model->impl().interleave(1, 2, false, 1);
  EXPECT_EQ(layout_of(weights.layers[0].wq), WeightLayout::kRows);
  EXPECT_EQ(layout_of(weights.layers[1].wq), WeightLayout::kInterleaved);
  EXPECT_EQ(layout_of(weights.layers[2].wq), WeightLayout::kRows);
  const ggml_tensor* made = weights.layers[1].wq;
  model->impl().interleave(0, 3, true, 1);
  EXPECT_EQ(weights.layers[1].wq, made);
  EXPECT_EQ(layout_of(weights.layers[2].wq), WeightLayout::kInterleaved);
  EXPECT_EQ(layout_of(weights.token_embd), WeightLayout::kRows);  // rows are read from it
}

TEST_P(InterleavedWeightsTest, GiveTheSameLogits) {
  for (const int n_expert : {0, 4}) {
    TinyModelOptions with = options();
    if (n_expert > 0) with.architecture = "olmoe", with.n_expert = n_expert, with.n_expert_used = 2;
    const TinyModel file(with);
    std::vector<Session> sessions;
    for (const bool repack : {false, true}) {
      const auto engine = Engine::create(Model::load(file.path(), {.repack = repack}), {.n_threads = 2});
      sessions.push_back(engine->open({}));
      const Model::Impl& model = engine->model()->impl();
      EXPECT_EQ(layout_of(model.weights.layers[0].wq) == WeightLayout::kInterleaved, repack);
      sessions.back().prefill(some_tokens(40));
    }
    const auto logits = [&](std::size_t i) {
      const std::span<const float> row = sessions[i].logits();
      return std::vector<float>(row.begin(), row.end());
    };
    EXPECT_EQ(logits(0), logits(1)) << n_expert << " experts";
    for (Session& session : sessions) session.decode(5);
    EXPECT_EQ(logits(0), logits(1)) << n_expert << " experts";
  }
}

INSTANTIATE_TEST_SUITE_P(Types, InterleavedWeightsTest,
                         testing::Values(GGML_TYPE_Q4_K, GGML_TYPE_Q6_K, GGML_TYPE_Q8_0, GGML_TYPE_Q4_1),
                         [](const auto& type) { return std::string(ggml_type_name(type.param)); });

// The first model has a matrix without whole panels, the second a type without products.
TEST(InterleavedWeights, LeaveWhatTheyCannotTake) {
  if (!kernels::has_quantised_products()) GTEST_SKIP() << "not on this instruction set";
  TinyModelOptions options{.n_vocab = 301};
  options.weight_type = GGML_TYPE_Q8_0;
  const TinyModel odd(options);
  const auto model = Model::load(odd.path());
  model->impl().interleave(0, 3, true, 1);
  EXPECT_EQ(layout_of(model->impl().weights.output), WeightLayout::kRows);
  options.weight_type = GGML_TYPE_F16;
  const TinyModel half(options);
  const auto halves = Model::load(half.path());
  halves->impl().interleave(0, 3, true, 1);
  EXPECT_EQ(layout_of(halves->impl().weights.layers[0].wq), WeightLayout::kRows);
}

}  // namespace
}  // namespace winnow::test
