// Products of quantised weights against double precision on the same quantised numbers.
#include "kernels/products/quantised_product.h"

#include <gtest/gtest.h>
#include <hwy/aligned_allocator.h>

#include <cmath>

#include "kernels/quantised_matrix.h"
#include "kernels/test_head.h"
#include "normal_numbers.h"

namespace winnow::kernels {
namespace {

std::vector<float> random_rows(std::int64_t n_in, std::int64_t n_rows) {
  std::vector<float> x = test::normal_numbers(static_cast<std::size_t>(n_rows * n_in), 7);
  std::fill_n(x.begin(), 32, 0.0F);  // a block of zeros
  // The largest integers of either sign overflow first.
  for (std::size_t i = 32; i < 64 && i < x.size(); ++i) x[i] = i % 8 < 4 ? 3.0F : -3.0F;
  if (n_in > 64) std::fill_n(x.begin() + 64, 32, -2.0F);
  return x;
}

struct Outputs {
  std::int64_t first, last;
};

// Returns the product, with the outputs divided as between two threads.
std::vector<float> product(WeightBlocks blocks, const QuantisedMatrix& matrix, const std::vector<float>& x,
                           std::int64_t n_in, std::int64_t n_out, std::int64_t n_rows, Outputs of_first,
                           WeightLayout layout) {
  const auto rows = hwy::AllocateAligned<RowBlock>(static_cast<std::size_t>(n_rows * n_in / kRowBlock));
  quantise_rows(x.data(), n_in, 0, n_rows, {rows.get(), n_rows});
  std::vector<float> y(static_cast<std::size_t>(n_rows * n_out), std::nanf(""));
  // Rows are divided as between two experts.
  for (const auto& [first_row, last_row] : {std::pair{std::int64_t{0}, n_rows / 4}, std::pair{n_rows / 4, n_rows}}) {
    if (first_row == last_row) continue;
    for (const auto& [first, last] : {of_first, Outputs{of_first.last, n_out}}) {
      quantised_product(blocks, {.weights = matrix.blocks.data(),
                                 .next = nullptr,
                                 .weight_stride = matrix.row_bytes,
                                 .n_out = n_out,
                                 .first = first,
                                 .last = last,
                                 .rows = {rows.get(), n_rows},
                                 .first_row = first_row,
                                 .n_rows = last_row - first_row,
                                 .n_in = n_in,
                                 .y = y.data() + first_row * n_out,
                                 .y_stride = n_out,
                                 .layout = layout});
    }
  }
  return y;
}

std::vector<float> product(WeightBlocks blocks, const QuantisedMatrix& matrix, const std::vector<float>& x,
                           std::int64_t n_in, std::int64_t n_out, std::int64_t n_rows) {
  return product(blocks, matrix, x, n_in, n_out, n_rows, {0, n_out / 3}, WeightLayout::kRows);
}

QuantisedMatrix interleaved(const WeightBlocksInfo& info, const QuantisedMatrix& matrix, std::int64_t n_in) {
  QuantisedMatrix out = matrix;
  const InterleavedPanel shape(info.blocks, n_in);
  for (std::size_t at = 0; at < out.blocks.size(); at += shape.bytes()) {
    interleave(shape, matrix.blocks.data() + at, out.blocks.data() + at);
  }
  return out;
}

class QuantisedProduct : public EveryIsa {
 protected:
  static void check(const WeightBlocksInfo& info, const QuantisedMatrix& matrix, const std::vector<float>& x,
                    std::int64_t n_in, std::int64_t n_out, std::int64_t n_rows) {
    const std::vector<double> exact = rounded_to_8_bits(x);
    const std::vector<float> y = product(info.blocks, matrix, x, n_in, n_out, n_rows);
    for (std::int64_t r = 0; r < n_rows; ++r) {
      // A row alone gives the same bits.
      const std::vector<float> row(x.begin() + r * n_in, x.begin() + (r + 1) * n_in);
      const std::vector<float> alone = product(info.blocks, matrix, row, n_in, n_out, 1);
      for (std::int64_t i = 0; i < n_out; ++i) {
        double sum = 0, size = 0;
        for (std::int64_t j = 0; j < n_in; ++j) {
          const double term =
              matrix.weights[static_cast<std::size_t>(i * n_in + j)] * exact[static_cast<std::size_t>(r * n_in + j)];
          sum += term;
          size += std::fabs(term);
        }
        const float found = y[static_cast<std::size_t>(r * n_out + i)];
        ASSERT_NEAR(static_cast<double>(found), sum, 3e-6 * size)
            << info.name << ", n_in " << n_in << ", row " << r << " of " << n_rows << ", output " << i << " of "
            << n_out;
        ASSERT_EQ(alone[static_cast<std::size_t>(i)], found) << info.name << ", row " << r << " of " << n_rows;
      }
    }
  }

  static void check(const WeightBlocksInfo& info, std::int64_t n_in, std::int64_t n_out,
                    std::initializer_list<std::int64_t> numbers_of_rows) {
    const QuantisedMatrix matrix(info, n_in, n_out, static_cast<std::uint32_t>(n_in + n_out));
    for (const std::int64_t n_rows : numbers_of_rows) {
      check(info, matrix, random_rows(n_in, n_rows), n_in, n_out, n_rows);
    }
  }
};

TEST_P(QuantisedProduct, MatchesTheReference) {
  if (!has_quantised_products()) GTEST_SKIP() << "not on this instruction set";
  for (const WeightBlocksInfo& info : kWeightBlocks) {
    EXPECT_EQ(weight_blocks(info.name), info.blocks);
    EXPECT_EQ(&weight_blocks_info(info.blocks), &info);
    check(info, info.n_weights, 7, {1, 2, 11});
    check(info, 2 * info.n_weights, 67, {1, 3, 4, 5, 6, 13});
    check(info, 256 + info.n_weights, 33, {1, 7});
    check(info, 768, 16, {2, 65});
    check(info, 2048, 50, {1, 17});
    check(info, info.n_weights, 19, {700});  // more rows than a panel is unpacked for at once
  }
}

TEST_P(QuantisedProduct, InterleavedRowsGiveTheSameBits) {
  if (!has_quantised_products()) GTEST_SKIP() << "not on this instruction set";
  for (const WeightBlocksInfo& info : kWeightBlocks) {
    for (const std::int64_t n_in : {info.n_weights, 256 + info.n_weights, std::int64_t{1536}}) {
      for (const std::int64_t n_out : {16, 48, 80}) {
        const QuantisedMatrix rows(info, n_in, n_out, static_cast<std::uint32_t>(n_in + n_out));
        const QuantisedMatrix panels = interleaved(info, rows, n_in);
        for (const std::int64_t n_rows : {1, 2, 3, 4, 5, 8, 17}) {
          const std::vector<float> x = random_rows(n_in, n_rows);
          const auto of = [&](const QuantisedMatrix& matrix, WeightLayout layout) {
            return product(info.blocks, matrix, x, n_in, n_out, n_rows, {0, n_out / 48 * 16}, layout);
          };
          ASSERT_EQ(of(panels, WeightLayout::kInterleaved), of(rows, WeightLayout::kRows))
              << info.name << ", n_in " << n_in << ", " << n_out << " outputs, " << n_rows << " rows";
        }
      }
    }
  }
}

TEST(InterleavedRows, GoThereAndBack) {
  for (const WeightBlocksInfo& info : kWeightBlocks) {
    const std::int64_t n_in = 3 * info.n_weights;
    const QuantisedMatrix rows(info, n_in, 32, 1);
    const QuantisedMatrix panels = interleaved(info, rows, n_in);
    EXPECT_NE(panels.blocks, rows.blocks) << info.name;
    const InterleavedPanel shape(info.blocks, n_in);
    std::vector<std::byte> row(shape.row_bytes());
    for (std::size_t i = 0; i < 32; ++i) {
      interleaved_row(shape, panels.blocks.data() + i / 16 * shape.bytes(), i % 16, row.data());
      const auto expected = rows.blocks.begin() + static_cast<std::ptrdiff_t>(i * shape.row_bytes());
      ASSERT_TRUE(std::equal(row.begin(), row.end(), expected)) << info.name << ", row " << i;
    }
  }
}

// Adds products of bytes that are as large as possible, of either sign.
TEST_P(QuantisedProduct, TheLargestIntegersFit) {
  if (!has_quantised_products()) GTEST_SKIP() << "not on this instruction set";
  for (const WeightBlocksInfo& info : kWeightBlocks) {
    if (info.blocks == WeightBlocks::kMXFP4) continue;  // a byte of a block is its scale
    for (const unsigned byte : {0x00U, 0x7FU, 0x80U, 0xFFU}) {
      const QuantisedMatrix matrix(info, 256, 16, 1, 1, static_cast<std::byte>(byte));
      std::vector<float> x(std::size_t{5} * 256, 1.0F);
      std::fill_n(x.begin(), 256, -1.0F);
      check(info, matrix, x, 256, 16, 5);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, QuantisedProduct, testing::ValuesIn(supported_isas()), isa_test_name);

}  // namespace
}  // namespace winnow::kernels
