#include "kernels/attention/softmax_row.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/test_head.h"
#include "normal_numbers.h"

namespace winnow::kernels {
namespace {

using test::normal_numbers;

class SoftmaxRow : public EveryIsa {};

constexpr float kNone = -std::numeric_limits<float>::infinity();

// Computes the weights in double, with the largest score subtracted.
std::vector<double> expected_weights(const std::vector<float>& scores, double cap, double sink) {
  std::vector<double> weights;
  double high = sink, sum = 0;
  for (const float s : scores) {
    const auto score = static_cast<double>(s);
    weights.push_back(cap == 0 ? score : cap * std::tanh(score / cap));
    high = std::max(high, weights.back());
  }
  for (double& w : weights) sum += w = std::exp(w - high);
  sum += std::exp(sink - high);
  for (double& w : weights) w /= sum;
  return weights;
}

TEST_P(SoftmaxRow, IsTheSoftmax) {
  for (const int n : {1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 64, 700}) {
    for (const float cap : {0.0F, 5.0F}) {
      for (const float sink : {kNone, -2.0F, 30.0F}) {
        std::vector<float> scores = normal_numbers(static_cast<std::size_t>(n), 7);
        for (float& s : scores) s *= 6;
        const std::vector<double> expected =
            expected_weights(scores, static_cast<double>(cap), static_cast<double>(sink));
        const float most = *std::max_element(scores.begin(), scores.end());
        std::vector<float> row = {3};  // a row may begin anywhere
        row.insert(row.end(), scores.begin(), scores.end());
        row.push_back(-7);  // after the row
        const float largest = softmax_row(row.data() + 1, n, cap, sink);
        EXPECT_EQ(row.front(), 3.0F);
        row.erase(row.begin());
        EXPECT_NEAR(largest, cap == 0 ? most : cap * std::tanh(most / cap), 1e-5F);
        for (std::size_t i = 0; i < expected.size(); ++i) {
          EXPECT_NEAR(static_cast<double>(row[i]), expected[i], 1e-5 * expected[i] + 1e-37)
              << n << " " << cap << " " << sink << " " << i;
        }
        EXPECT_EQ(row.back(), -7.0F);
      }
    }
  }
}

TEST_P(SoftmaxRow, SaysThatAScoreIsNotFinite) {
  for (const float broken : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), kNone}) {
    for (const std::size_t at : {0, 15, 18}) {
      std::vector<float> row(19, 1.0F);
      row[at] = broken;
      EXPECT_TRUE(std::isnan(softmax_row(row.data(), 19, 0, kNone))) << broken << " " << at;
    }
  }
  std::vector<float> row(19, 1.0F);
  EXPECT_TRUE(std::isnan(softmax_row(row.data(), 19, 0, std::numeric_limits<float>::quiet_NaN())));
  EXPECT_TRUE(std::isnan(softmax_row(row.data(), 19, 0, std::numeric_limits<float>::infinity())));
}

INSTANTIATE_TEST_SUITE_P(Isa, SoftmaxRow, testing::ValuesIn(vector_isas()), isa_test_name);

}  // namespace
}  // namespace winnow::kernels
