// Products of few rows against double precision on the same quantised numbers.
#include "kernels/few_rows_product.h"

#include <gtest/gtest.h>
#include <hwy/aligned_allocator.h>

#include <cmath>
#include <random>

#include "kernels/quantised_matrix.h"
#include "kernels/test_head.h"

namespace winnow::kernels {
namespace {

constexpr float kMinimum = 7;         // minima that are no small matter beside the integers
constexpr double kSubnormal = 1e-40;  // a product of the smallest scales is rounded by so much

std::vector<float> product(WeightBlocks blocks, const QuantisedMatrix& matrix, const std::vector<float>& x, int n_in,
                           int n_out, int n_rows) {
  const auto rows = hwy::AllocateAligned<std::byte>(few_rows_bytes(n_in, n_rows));
  quantise_few_rows(x.data(), n_in, n_rows, rows.get());
  std::vector<float> y(static_cast<std::size_t>(n_rows * n_out), std::nanf(""));
  // As two threads would.
  for (const auto& [first, last] : {std::pair{0, n_out / 3}, std::pair{n_out / 3, n_out}}) {
    few_rows_product(blocks, {.weights = matrix.blocks.data(),
                              .weight_stride = matrix.row_bytes,
                              .first = first,
                              .last = last,
                              .rows = rows.get(),
                              .n_in = n_in,
                              .n_rows = n_rows,
                              .y = y.data(),
                              .y_stride = n_out});
  }
  return y;
}

class FewRowsProduct : public EveryIsa {};

TEST_P(FewRowsProduct, MatchesTheReference) {
  for (const WeightBlocksInfo& info : kWeightBlocks) {
    const WeightBlocks blocks = info.blocks;
    EXPECT_EQ(weight_blocks(info.name), blocks);
    if (!has_few_rows_product(blocks)) continue;
    for (const int n_in : {32, 64, 96, 256, 480, 512, 544, 576, 768, 1536, 2304}) {
      if (n_in % info.n_weights != 0) continue;
      const int n_out = 7;
      const QuantisedMatrix matrix(info, n_in, n_out, static_cast<std::uint32_t>(n_in), kMinimum);
      for (const int n_rows : {1, 2, 3, 4, 5, 8, 11}) {
        std::mt19937 random(7);
        std::normal_distribution<float> normal;
        std::vector<float> x(static_cast<std::size_t>(n_rows * n_in));
        for (float& number : x) number = normal(random);
        std::fill_n(x.begin(), 32, 0.0F);  // a block of zeros
        const std::vector<double> exact = rounded_to_8_bits(x);
        const std::vector<float> y = product(blocks, matrix, x, n_in, n_out, n_rows);
        for (int r = 0; r < n_rows; ++r) {
          for (int i = 0; i < n_out; ++i) {
            double sum = 0, size = 0;
            for (int j = 0; j < n_in; ++j) {
              const double term = matrix.weights[static_cast<std::size_t>(i * n_in + j)] *
                                  exact[static_cast<std::size_t>(r * n_in + j)];
              sum += term;
              size += std::fabs(term);
            }
            ASSERT_NEAR(static_cast<double>(y[static_cast<std::size_t>(r * n_out + i)]), sum, 3e-6 * size + kSubnormal)
                << info.name << ", n_in " << n_in << ", row " << r << " of " << n_rows << ", output " << i;
          }
        }
        // The same bits alone.
        for (int r = 0; r < n_rows; ++r) {
          const std::vector<float> row(x.begin() + std::ptrdiff_t{r} * n_in, x.begin() + std::ptrdiff_t{r + 1} * n_in);
          const std::vector<float> alone = product(blocks, matrix, row, n_in, n_out, 1);
          for (int i = 0; i < n_out; ++i) {
            ASSERT_EQ(alone[static_cast<std::size_t>(i)], y[static_cast<std::size_t>(r * n_out + i)]) << "row " << r;
          }
        }
      }
    }
  }
}

// What people run has a product on every instruction set with products of bytes.
TEST_P(FewRowsProduct, HasFormats) {
  for (const WeightBlocksInfo& info : kWeightBlocks) {
    const bool is_ggmls = info.blocks == WeightBlocks::kQ5_1 || info.blocks == WeightBlocks::kQ2_K;
    const bool expected =
        current_int8_unit() == Int8Unit::kAvx512Vnni || (current_int8_unit() != Int8Unit::kNone && !is_ggmls);
    EXPECT_EQ(has_few_rows_product(info.blocks), expected) << info.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, FewRowsProduct, testing::ValuesIn(supported_isas()), isa_test_name);

}  // namespace
}  // namespace winnow::kernels
