// Products with many rows by oneDNN against sums in double precision.
#include "model/packed_weights.h"

#include <ggml-cpp.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/products/weight_rows.h"
#include "kernels/simd/isa.h"
#include "model/compute.h"
#include "model/weights.h"
#include "normal_numbers.h"

namespace winnow {
namespace {

ggml_tensor* random_matrix(ggml_context* context, ggml_type type, int n_in, int n_out, std::uint32_t seed) {
  const std::vector<float> values =
      test::normal_numbers(static_cast<std::size_t>(n_in) * static_cast<std::size_t>(n_out), seed);
  ggml_tensor* tensor = ggml_new_tensor_2d(context, type, n_in, n_out);
  if (type == GGML_TYPE_F32) {
    std::copy(values.begin(), values.end(), static_cast<float*>(tensor->data));
  } else {
    ggml_quantize_chunk(type, values.data(), tensor->data, 0, n_out, n_in, nullptr);
  }
  return tensor;
}

// Returns the largest deviation of the node's y from W x in double, relative to |W| |x| (the sum of the products'
// magnitudes).
double deviation(const ggml_tensor* weight, const std::vector<float>& x, const float* y, int n_rows) {
  const auto n_in = static_cast<std::size_t>(weight->ne[0]);
  const auto n_out = static_cast<std::size_t>(weight->ne[1]);
  double most = 0;
  std::vector<float> w(n_in);
  for (std::size_t o = 0; o < n_out; ++o) {
    dequantize_row(weight, static_cast<std::int64_t>(o), w.data());
    for (std::size_t r = 0; r < static_cast<std::size_t>(n_rows); ++r) {
      double sum = 0;
      double magnitude = 0;
      for (std::size_t i = 0; i < n_in; ++i) {
        const double product = double{w[i]} * double{x[r * n_in + i]};
        sum += product;
        magnitude += std::abs(product);
      }
      const double difference = std::abs(double{y[r * n_out + o]} - sum) / magnitude;
      if (std::isnan(difference)) return HUGE_VAL;
      most = std::max(most, difference);
    }
  }
  return most;
}

double product_deviation(PackedLayer& packed, Compute& compute, ggml_tensor* weight, int n_rows) {
  std::vector<float> x =
      test::normal_numbers(static_cast<std::size_t>(weight->ne[0]) * static_cast<std::size_t>(n_rows), 99);
  packed.prepare(n_rows);
  Graph graph(8);
  ggml_tensor* y = packed_product(graph.context(), *packed.find(weight),
                                  graph.external(GGML_TYPE_F32, weight->ne[0], n_rows, x.data()));
  ggml_set_output(y);
  graph.expand(y);
  graph.allocate();
  compute.run(graph);
  return deviation(weight, x, static_cast<const float*>(y->data), n_rows);
}

// bf16 has 8 bits, so a product of two rounded numbers is off by at most 2^-8 of its magnitude.
double tolerance_of(const ggml_tensor* weight) {
  return packed_type_for(weight) == PackedType::kBF16 ? 1.0 / 256 : 1e-5;
}

class PackedWeightsTest : public testing::TestWithParam<ggml_type> {
 protected:
  ggml_context_ptr context_{ggml_init({.mem_size = std::size_t{16} << 20, .mem_buffer = nullptr, .no_alloc = false})};
};

TEST_P(PackedWeightsTest, ProductsAreRightForEveryNumberOfRows) {
  for (const int n_threads : {1, 2, 3}) {
    Compute compute(n_threads);
    PackedLayer packed;
    ggml_tensor* weights[] = {random_matrix(context_.get(), GetParam(), 96, 70, 1),
                              random_matrix(context_.get(), GetParam(), 64, 192, 2)};
    packed.pack(weights, 130, compute);
    for (ggml_tensor* weight : weights) {
      for (const int n_rows : {1, 2, 3, 31, 32, 33, 64, 129, 130}) {
        EXPECT_LT(product_deviation(packed, compute, weight, n_rows), tolerance_of(weight))
            << n_rows << " rows, " << n_threads << " threads";
      }
    }
  }
}

TEST_P(PackedWeightsTest, OneLayerAfterTheOther) {
  Compute compute(2);
  PackedLayer packed;
  ggml_tensor* first = random_matrix(context_.get(), GetParam(), 96, 64, 1);
  ggml_tensor* second = random_matrix(context_.get(), GetParam(), 96, 64, 2);
  for (int round = 0; round < 2; ++round) {
    for (ggml_tensor* weight : {first, second}) {
      packed.pack(std::span(&weight, 1), 40, compute);
      EXPECT_EQ(packed.find(weight == first ? second : first), nullptr);
      EXPECT_LT(product_deviation(packed, compute, weight, 40), tolerance_of(weight));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, PackedWeightsTest,
                         testing::Values(GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_BF16, GGML_TYPE_Q4_0, GGML_TYPE_Q4_1,
                                         GGML_TYPE_Q8_0),
                         [](const auto& test) { return std::string(ggml_type_name(test.param)); });

// A limited number of products is cached by the number of rows; every length must still work.
TEST(PackedWeightsTest, EveryOneOfManyPromptLengthsIsPrepared) {
  const ggml_context_ptr context(
      ggml_init({.mem_size = std::size_t{1} << 20, .mem_buffer = nullptr, .no_alloc = false}));
  ggml_tensor* weight = random_matrix(context.get(), GGML_TYPE_F32, 32, 32, 1);
  Compute compute(2);
  PackedLayer packed;
  packed.pack(std::span(&weight, 1), 400, compute);
  for (int n_rows = 1; n_rows <= 400; n_rows += 5) {
    EXPECT_LT(product_deviation(packed, compute, weight, n_rows), 1e-5) << n_rows << " rows";
  }
}

// The first pack decides the scratch sizes; a later one with more rows or wider matrices must not run over.
TEST(PackedWeightsTest, LaterLayersMayBeLarger) {
  const ggml_context_ptr context(
      ggml_init({.mem_size = std::size_t{4} << 20, .mem_buffer = nullptr, .no_alloc = false}));
  Compute compute(2);
  PackedLayer packed;
  for (const int n : {32, 96, 224}) {
    ggml_tensor* weight = random_matrix(context.get(), GGML_TYPE_F16, n, n, 1);
    packed.pack(std::span(&weight, 1), n, compute);
    EXPECT_LT(product_deviation(packed, compute, weight, n), tolerance_of(weight)) << n;
  }
}

// Compares with ggml's conversion on every instruction set: the result is the nearest bfloat16, except for the rounding
// of the sum.
TEST(WeightRows, AreGgmlsWeightsRounded) {
  constexpr int kIn = 512;
  for (const ggml_type type : {GGML_TYPE_Q4_0, GGML_TYPE_Q4_1, GGML_TYPE_Q8_0, GGML_TYPE_Q4_K, GGML_TYPE_Q6_K}) {
    const ggml_context_ptr context(
        ggml_init({.mem_size = std::size_t{1} << 20, .mem_buffer = nullptr, .no_alloc = false}));
    const ggml_tensor* weight = random_matrix(context.get(), type, kIn, 5, 7);
    const auto blocks = kernels::weight_blocks(ggml_type_name(type));
    ASSERT_TRUE(blocks) << ggml_type_name(type);
    EXPECT_EQ(kernels::weight_blocks_info(*blocks).n_weights, ggml_blck_size(type));
    for (const std::string& isa : kernels::supported_isas()) {
      kernels::force_isa(isa);
      for (int row = 0; row < 5; ++row) {
        std::vector<float> expected(kIn);
        dequantize_row(weight, row, expected.data());
        std::vector<std::uint16_t> got(kIn);
        kernels::weight_row_to_bf16(*blocks, static_cast<const std::byte*>(weight->data) + row * weight->nb[1],
                                    got.data(), kIn);
        float largest = 0;
        for (const float x : expected) largest = std::max(largest, std::abs(x));
        for (std::size_t i = 0; i < expected.size(); ++i) {
          const float value = ggml_bf16_to_fp32({got[i]});
          // The error is half a unit in bfloat16's last place, plus float32's error where scale * q + minimum cancels.
          EXPECT_LE(std::abs(value - expected[i]), std::abs(expected[i]) / 256 + largest * 1e-6F)
              << ggml_type_name(type) << " " << isa << " " << row << " " << i;
        }
      }
    }
    kernels::force_isa("");
  }
  EXPECT_FALSE(kernels::weight_blocks("iq2_xs"));
}

}  // namespace
}  // namespace winnow
