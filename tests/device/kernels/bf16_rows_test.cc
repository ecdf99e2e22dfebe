// Kernels that convert rows for products of bfloat16, run over fibers and compared with double precision.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "device/kernels/host_kernels.h"
#include "normal_numbers.h"

namespace winnow::device {
namespace {

std::vector<float> numbers(std::size_t n, unsigned seed) { return test::normal_numbers(n, seed, 0, 2); }

float as_float(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16U); }

// Expects at most half a unit in the last of bfloat16's 8 bits and the rounding of float32.
void expect_rounded(double expected, std::uint16_t got) {
  EXPECT_NEAR(as_float(got), expected, std::abs(expected) / 256 + 1e-6);
}

TEST(Bf16RowsTest, RowsAreConverted) {
  for (const std::size_t n : {std::size_t{8}, std::size_t{2048}, std::size_t{5000}}) {
    const std::vector<float> from = numbers(n, 1);
    std::vector<std::uint16_t> to(n + 8, 0x7FC0);
    simt::Queue queue;
    fibers::run(queue, RowsToBf16{.from = from.data(), .to = to.data(), .n = static_cast<std::int64_t>(n)});
    for (std::size_t i = 0; i < n; ++i) expect_rounded(static_cast<double>(from[i]), to[i]);
    EXPECT_EQ(to[n], 0x7FC0);
  }
}

TEST(Bf16RowsTest, RowsAreNormed) {
  for (const int n : {64, 576, 4096}) {
    constexpr int kRows = 3;
    const std::vector<float> from = numbers(static_cast<std::size_t>(n * kRows), 2);
    const std::vector<float> weight = numbers(static_cast<std::size_t>(n), 3);
    for (const bool has_weight : {false, true}) {
      std::vector<std::uint16_t> to(from.size());
      simt::Queue queue;
      fibers::run(queue, NormedToBf16{.from = from.data(),
                                      .weight = has_weight ? weight.data() : nullptr,
                                      .to = to.data(),
                                      .eps = 1e-5F,
                                      .n = n,
                                      .n_rows = kRows});
      for (int r = 0; r < kRows; ++r) {
        double squares = 0;
        const auto at = [&](int i) { return static_cast<std::size_t>(r * n + i); };
        for (int i = 0; i < n; ++i) squares += std::pow(static_cast<double>(from[at(i)]), 2);
        const double scale = 1 / std::sqrt(squares / n + 1e-5);
        for (int i = 0; i < n; ++i) {
          const double w = has_weight ? static_cast<double>(weight[static_cast<std::size_t>(i)]) : 1;
          expect_rounded(static_cast<double>(from[at(i)]) * scale * w, to[at(i)]);
        }
      }
    }
  }
}

TEST(Bf16RowsTest, RowsAreGated) {
  constexpr std::size_t kN = 3000;
  const std::vector<float> gate = numbers(kN, 4), up = numbers(kN, 5);
  for (const bool is_gelu : {false, true}) {
    std::vector<std::uint16_t> to(kN);
    simt::Queue queue;
    fibers::run(queue, GatedToBf16{.gate = gate.data(), .up = up.data(), .to = to.data(), .n = kN, .is_gelu = is_gelu});
    for (std::size_t i = 0; i < kN; ++i) {
      const auto x = static_cast<double>(gate[i]);
      const double gelu = x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + .044715 * x * x * x)));
      expect_rounded((is_gelu ? gelu : x / (1 + std::exp(-x))) * static_cast<double>(up[i]), to[i]);
    }
  }
}

}  // namespace
}  // namespace winnow::device
