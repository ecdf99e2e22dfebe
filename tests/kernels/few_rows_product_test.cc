// Products of few rows against double precision on the same quantised numbers.
#include "kernels/few_rows_product.h"

#include <gtest/gtest.h>
#include <hwy/aligned_allocator.h>

#include <cmath>
#include <cstring>
#include <random>

#include "kernels/half.h"
#include "kernels/test_head.h"

namespace winnow::kernels {
namespace {

struct Format {
  WeightBlocks blocks;
  const char* name;
  int bytes;
  bool has_minimum;
  int bias;  // 8: nibbles below 8 are negative
};

constexpr Format kFormats[] = {{WeightBlocks::kQ4_0, "q4_0", 18, false, 8},
                               {WeightBlocks::kQ4_1, "q4_1", 20, true, 0},
                               {WeightBlocks::kQ8_0, "q8_0", 34, false, 0}};

struct Matrix {
  Matrix(const Format& format, int n_in, int n_out, std::uint32_t seed)
      : row_bytes(static_cast<std::size_t>(n_in / 32 * format.bytes)),
        blocks(row_bytes * static_cast<std::size_t>(n_out)) {
    std::mt19937 random(seed);
    for (std::byte& byte : blocks) byte = static_cast<std::byte>(random() & 0xFFU);
    std::uniform_real_distribution<float> scale(0.01F, 0.1F);
    for (std::size_t at = 0; at < blocks.size(); at += static_cast<std::size_t>(format.bytes)) {
      std::vector<float> halves = {scale(random)};
      if (format.has_minimum) halves.push_back(-scale(random) * 7);
      for (std::size_t i = 0; i < halves.size(); ++i) {
        const std::uint16_t half = half_from_float(halves[i]);
        std::memcpy(&blocks[at + 2 * i], &half, 2);
      }
    }
    for (int i = 0; i < n_out; ++i) {
      for (int j = 0; j < n_in; ++j) weights.push_back(weight(format, i, j));
    }
  }

  double weight(const Format& format, int i, int j) const {
    const std::byte* block =
        &blocks[static_cast<std::size_t>(i) * row_bytes + static_cast<std::size_t>(j / 32 * format.bytes)];
    const auto half = [&](int at) {
      std::uint16_t bits;
      std::memcpy(&bits, block + at, 2);
      return static_cast<double>(float_from_half(bits));
    };
    const std::byte* integers = block + (format.has_minimum ? 4 : 2);
    const int k = j % 32;
    if (format.blocks == WeightBlocks::kQ8_0) return half(0) * static_cast<std::int8_t>(integers[k]);
    const auto byte = static_cast<int>(integers[k % 16]);
    const int q = (k < 16 ? byte & 15 : byte >> 4) - format.bias;
    return half(0) * q + (format.has_minimum ? half(2) : 0.0);
  }

  std::size_t row_bytes;
  std::vector<std::byte> blocks;
  std::vector<double> weights;  // [n_out][n_in]
};

// x as blocks of 32 8-bit integers hold it.
std::vector<double> quantised(const std::vector<float>& x) {
  std::vector<double> out(x.size());
  for (std::size_t block = 0; block < x.size(); block += 32) {
    float most = 0;
    for (std::size_t i = block; i < block + 32; ++i) most = std::max(most, std::fabs(x[i]));
    for (std::size_t i = block; i < block + 32 && most > 0; ++i) {
      out[i] = static_cast<double>(most / 127.0F) * std::nearbyint(x[i] * (127.0F / most));
    }
  }
  return out;
}

std::vector<float> product(const Format& format, const Matrix& matrix, const std::vector<float>& x, int n_in, int n_out,
                           int n_rows) {
  const auto rows = hwy::AllocateAligned<std::byte>(few_rows_bytes(n_in, n_rows));
  quantise_few_rows(x.data(), n_in, n_rows, rows.get());
  std::vector<float> y(static_cast<std::size_t>(n_rows * n_out), std::nanf(""));
  // As two threads would.
  for (const auto& [first, last] : {std::pair{0, n_out / 3}, std::pair{n_out / 3, n_out}}) {
    few_rows_product(format.blocks, matrix.blocks.data(), matrix.row_bytes, first, last, rows.get(), n_in, n_rows,
                     y.data(), n_out);
  }
  return y;
}

class FewRowsProduct : public EveryIsa {};

TEST_P(FewRowsProduct, MatchesTheReference) {
  for (const Format& format : kFormats) {
    EXPECT_EQ(weight_blocks(format.name), format.blocks);
    if (!has_few_rows_product(format.blocks)) GTEST_SKIP() << "not on this instruction set";
    for (const int n_in : {32, 64, 96, 480, 512, 544, 576, 1536}) {
      const int n_out = 7;
      const Matrix matrix(format, n_in, n_out, static_cast<std::uint32_t>(n_in));
      for (const int n_rows : {1, 2, 3, 4, 5, 8, 11}) {
        std::mt19937 random(7);
        std::normal_distribution<float> normal;
        std::vector<float> x(static_cast<std::size_t>(n_rows * n_in));
        for (float& number : x) number = normal(random);
        std::fill_n(x.begin(), 32, 0.0F);  // a block of zeros
        const std::vector<double> exact = quantised(x);
        const std::vector<float> y = product(format, matrix, x, n_in, n_out, n_rows);
        for (int r = 0; r < n_rows; ++r) {
          for (int i = 0; i < n_out; ++i) {
            double sum = 0, size = 0;
            for (int j = 0; j < n_in; ++j) {
              const double term = matrix.weights[static_cast<std::size_t>(i * n_in + j)] *
                                  exact[static_cast<std::size_t>(r * n_in + j)];
              sum += term;
              size += std::fabs(term);
            }
            ASSERT_NEAR(static_cast<double>(y[static_cast<std::size_t>(r * n_out + i)]), sum, 3e-6 * size)
                << format.name << ", n_in " << n_in << ", row " << r << " of " << n_rows << ", output " << i;
          }
        }
        // The same bits alone.
        for (int r = 0; r < n_rows; ++r) {
          const std::vector<float> row(x.begin() + std::ptrdiff_t{r} * n_in, x.begin() + std::ptrdiff_t{r + 1} * n_in);
          const std::vector<float> alone = product(format, matrix, row, n_in, n_out, 1);
          for (int i = 0; i < n_out; ++i) {
            ASSERT_EQ(alone[static_cast<std::size_t>(i)], y[static_cast<std::size_t>(r * n_out + i)]) << "row " << r;
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, FewRowsProduct, testing::ValuesIn(supported_isas()), isa_test_name);

}  // namespace
}  // namespace winnow::kernels
