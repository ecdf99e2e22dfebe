#include "kernels/products/rms_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <vector>

#include "kernels/test_head.h"
#include "normal_numbers.h"

namespace winnow::kernels {
namespace {

using test::normal_numbers;

class RmsNorm : public EveryIsa {};

// Computes the row in double and rounds once.
std::vector<float> expected_row(const std::vector<float>& x, const std::vector<float>& weight, double eps) {
  double sum = 0;
  for (const float v : x) sum += static_cast<double>(v) * static_cast<double>(v);
  const double root = std::sqrt(sum / static_cast<double>(x.size()) + eps);
  std::vector<float> y;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double w = weight.empty() ? 1 : static_cast<double>(weight[i]);
    y.push_back(static_cast<float>(static_cast<double>(x[i]) / root * w));
  }
  return y;
}

TEST_P(RmsNorm, IsTheNormOfRowsOfAnySize) {
  for (const int n : {1, 3, 4, 15, 16, 17, 31, 32, 33, 64, 100, 2048}) {
    for (const bool has_weight : {false, true}) {
      const auto size = static_cast<std::size_t>(n);
      std::vector<float> x = normal_numbers(size, 3), weight;
      for (float& v : x) v *= 100;
      if (has_weight) weight = normal_numbers(size, 4);
      const std::vector<float> expected = expected_row(x, weight, 1e-5);
      std::vector<float> y(size + 2, 3.0F);  // a row may begin anywhere, and only it is written
      rms_norm_row(x.data(), has_weight ? weight.data() : nullptr, 1e-5F, n, y.data() + 1);
      EXPECT_EQ(y.front(), 3.0F);
      EXPECT_EQ(y.back(), 3.0F);
      for (std::size_t i = 0; i < size; ++i) {
        EXPECT_NEAR(y[i + 1], expected[i], 4e-7F * std::fabs(expected[i])) << n << " " << i;
      }
    }
  }
}

TEST_P(RmsNorm, AddsManySmallSquaresToALargeOne) {
  // Each small square would be lost in float32 when added to the first; together they are a hundredth of the sum.
  std::vector<float> x(1000001, 1e-4F);
  x.front() = 1.0F;
  rms_norm_row(x.data(), nullptr, 0.0F, static_cast<int>(x.size()), x.data());  // in place
  EXPECT_NEAR(x.front(), std::sqrt(1000001 / 1.01), 1e-3);
}

TEST_P(RmsNorm, EpsIsAddedToTheMean) {
  std::vector<float> x(40, 0.0F);
  rms_norm_row(x.data(), nullptr, 1e-6F, 40, x.data());
  for (const float v : x) EXPECT_EQ(v, 0.0F);
  x.assign(40, 2.0F);
  rms_norm_row(x.data(), nullptr, 12.0F, 40, x.data());
  for (const float v : x) EXPECT_NEAR(v, 0.5F, 1e-6F);
}

TEST_P(RmsNorm, TakesSquaresBeyondFloat32) {
  std::vector<float> x(24, 1e25F);  // 1e50
  rms_norm_row(x.data(), nullptr, 1e-5F, 24, x.data());
  for (const float v : x) EXPECT_NEAR(v, 1.0F, 1e-6F);
}

INSTANTIATE_TEST_SUITE_P(Isa, RmsNorm, testing::ValuesIn(vector_isas()), isa_test_name);

}  // namespace
}  // namespace winnow::kernels
