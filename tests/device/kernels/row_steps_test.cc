#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "device/kernels/eight_bit_rows.h"
#include "device/kernels/row_steps-inl.h"

namespace winnow::device {
namespace {

using simt::ThreadOrder;

constexpr ThreadOrder kOrders[] = {ThreadOrder::kAscending, ThreadOrder::kDescending, ThreadOrder::kRandom};

// Expects the bytes that are nearest to the numbers, and the sums of these bytes.
void expect_eight_bits(const EightBitArrays& rows, const std::vector<double>& expected) {
  ASSERT_EQ(rows.size(), expected.size());
  for (std::size_t i = 0; i < rows.size(); i += 32) {
    int sum = 0, most = 0;
    double largest = 0;
    for (std::size_t j = i; j < i + 32; ++j) {
      ASSERT_NEAR(rows.number(j), expected[j], static_cast<double>(rows.scale(i)) * 0.5001 + 1e-6) << j;
      sum += rows.byte(j);
      most = std::max(most, std::abs(rows.byte(j)));
      largest = std::max(largest, std::abs(expected[j]));
    }
    ASSERT_EQ(most, largest > 0 ? 127 : 0);
    ASSERT_EQ(rows.scaled_sum(i), rows.scale(i) * static_cast<float>(sum));
  }
}

TEST(QuantiseRows, TakesTheNearestBytes) {
  std::mt19937 random(1);
  for (const int n : {32, 96, 1024, 1120, 4096}) {
    for (const int n_rows : {1, 3, 8}) {
      const AlignedArray<float> x = random_floats(static_cast<std::size_t>(n_rows * n), random, 3.0F);
      for (std::size_t i = 0; i < 32; ++i) x[i] = 0;
      for (const ThreadOrder order : kOrders) {
        const EightBitArrays to(n_rows, n);
        simt::Queue queue(order);
        queue_quantise_rows(queue, {.x = x.data(), .to = to.rows(), .n_rows = n_rows, .n = n});
        ASSERT_NO_FATAL_FAILURE(expect_eight_bits(to, std::vector<double>(x.data(), x.data() + x.size())));
      }
    }
  }
}

TEST(RmsNormRows, MatchesDoublePrecision) {
  std::mt19937 random(2);
  for (const int n : {32, 2048, 4096, 5120, 12288, kMaxNormNumbers}) {
    for (const int n_rows : {1, 4}) {
      for (const bool has_weight : {true, false}) {
        for (const bool has_add : {true, false}) {
          const std::size_t size = static_cast<std::size_t>(n_rows) * static_cast<std::size_t>(n);
          const AlignedArray<float> x = random_floats(size, random, 2.0F);
          const AlignedArray<float> add = random_floats(size, random);
          const AlignedArray<float> weight = random_floats(static_cast<std::size_t>(n), random);
          std::vector<float> sums(x.data(), x.data() + size);
          if (has_add) {
            for (std::size_t i = 0; i < size; ++i) sums[i] += add[i];
          }
          const AlignedArray<float> out(size);
          const EightBitArrays eight(n_rows, n);
          simt::Queue queue(ThreadOrder::kRandom);
          queue_rms_norm_rows(queue, {.x = x.data(),
                                      .add = has_add ? add.data() : nullptr,
                                      .weight = has_weight ? weight.data() : nullptr,
                                      .eps = 1e-3F,
                                      .out = out.data(),
                                      .eight = eight.rows(),
                                      .n_rows = n_rows,
                                      .n = n});
          std::vector<double> expected;
          for (int r = 0; r < n_rows; ++r) {
            double squares = 0;
            const float* row = sums.data() + r * n;
            for (int i = 0; i < n; ++i) squares += static_cast<double>(row[i]) * static_cast<double>(row[i]);
            const double factor = 1 / std::sqrt(squares / n + 1e-3);
            for (int i = 0; i < n; ++i) {
              expected.push_back(static_cast<double>(row[i]) * factor *
                                 (has_weight ? static_cast<double>(weight[static_cast<std::size_t>(i)]) : 1.0));
            }
          }
          ASSERT_EQ(std::memcmp(x.data(), sums.data(), size * sizeof(float)), 0);
          for (std::size_t i = 0; i < size; ++i) {
            ASSERT_NEAR(static_cast<double>(out[i]), expected[i], 1e-6 * (1 + std::abs(expected[i])));
          }
          ASSERT_NO_FATAL_FAILURE(expect_eight_bits(eight, expected));
          // A row alone, with only one of the outputs, has the same bits.
          const AlignedArray<float> alone(static_cast<std::size_t>(n));
          queue_rms_norm_rows(queue, {.x = x.data() + (n_rows - 1) * n,
                                      .add = nullptr,
                                      .weight = has_weight ? weight.data() : nullptr,
                                      .eps = 1e-3F,
                                      .out = alone.data(),
                                      .eight = {},
                                      .n_rows = 1,
                                      .n = n});
          ASSERT_EQ(std::memcmp(alone.data(), out.data() + (n_rows - 1) * n, alone.size() * sizeof(float)), 0);
        }
      }
    }
  }
}

TEST(GatedRows, MatchDoublePrecision) {
  std::mt19937 random(3);
  for (const GateActivation activation : {GateActivation::kSilu, GateActivation::kGelu}) {
    for (const int n : {32, 1120, 4096}) {
      for (const int n_rows : {1, 5}) {
        const std::size_t size = static_cast<std::size_t>(n_rows * n);
        const AlignedArray<float> gate = random_floats(size, random, 3.0F), up = random_floats(size, random);
        std::vector<double> expected;
        for (std::size_t i = 0; i < size; ++i) {
          const auto x = static_cast<double>(gate[i]);
          const double y = activation == GateActivation::kSilu
                               ? x / (1 + std::exp(-x))
                               : 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
          expected.push_back(y * static_cast<double>(up[i]));
        }
        const EightBitArrays eight(n_rows, n);
        simt::Queue queue(ThreadOrder::kRandom);
        queue_gated_rows(queue, {.gate = gate.data(),
                                 .up = up.data(),
                                 .activation = activation,
                                 .out = gate.data(),  // in place
                                 .eight = eight.rows(),
                                 .n_rows = n_rows,
                                 .n = n});
        for (std::size_t i = 0; i < size; ++i) {
          ASSERT_NEAR(static_cast<double>(gate[i]), expected[i], 2e-6 * (1 + std::abs(expected[i])));
        }
        ASSERT_NO_FATAL_FAILURE(expect_eight_bits(eight, expected));
      }
    }
  }
}

}  // namespace
}  // namespace winnow::device
