// Products of quantised weights against double precision on the same quantised numbers.
#include "kernels/quantised_product.h"

#include <gtest/gtest.h>
#include <hwy/aligned_allocator.h>

#include <cmath>
#include <cstring>
#include <random>

#include "kernels/half.h"
#include "kernels/reference/weights.h"
#include "kernels/test_head.h"

namespace winnow::kernels {
namespace {

// Where a format's float16 numbers are, and which of them are minima.
std::vector<std::size_t> half_offsets(WeightBlocks blocks) {
  switch (blocks) {
    case WeightBlocks::kQ4_1:
    case WeightBlocks::kQ5_1:
    case WeightBlocks::kQ4_K:
    case WeightBlocks::kQ5_K:
      return {0, 2};
    case WeightBlocks::kQ2_K:
      return {80, 82};
    case WeightBlocks::kQ3_K:
      return {108};
    case WeightBlocks::kQ6_K:
      return {208};
    case WeightBlocks::kMXFP4:
      return {};
    default:
      return {0};
  }
}

// Random bytes, with scales of a sane size.
struct Matrix {
  Matrix(const WeightBlocksInfo& info, std::int64_t n_in, std::int64_t n_out, std::uint32_t seed)
      : row_bytes(static_cast<std::size_t>(n_in / info.n_weights) * info.n_bytes),
        blocks(row_bytes * static_cast<std::size_t>(n_out)) {
    std::mt19937 random(seed);
    for (std::byte& byte : blocks) byte = static_cast<std::byte>(random() & 0xFFU);
    std::uniform_real_distribution<float> scale(0.01F, 0.1F);
    for (std::size_t at = 0; at < blocks.size(); at += info.n_bytes) {
      for (const std::size_t offset : half_offsets(info.blocks)) {
        const std::uint16_t half = half_from_float(offset % 4 == 2 ? -scale(random) : scale(random));
        std::memcpy(&blocks[at + offset], &half, 2);
      }
      // Around 1; sometimes the smallest scale of all, which is subnormal.
      if (info.blocks == WeightBlocks::kMXFP4) {
        blocks[at] = static_cast<std::byte>(random() % 8 == 0 ? random() % 3 : 120 + random() % 8);
      }
    }
    for (std::int64_t i = 0; i < n_out; ++i) {
      const std::vector<double> row = reference::weights(info.blocks, &blocks[static_cast<std::size_t>(i) * row_bytes],
                                                         static_cast<std::size_t>(n_in));
      weights.insert(weights.end(), row.begin(), row.end());
    }
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

std::vector<float> random_rows(std::int64_t n_in, std::int64_t n_rows) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<std::size_t>(n_rows * n_in));
  for (float& number : x) number = normal(random);
  std::fill_n(x.begin(), 32, 0.0F);  // a block of zeros
  // The largest integers of either sign: what overflows first.
  for (std::size_t i = 32; i < 64 && i < x.size(); ++i) x[i] = i % 8 < 4 ? 3.0F : -3.0F;
  if (n_in > 64) std::fill_n(x.begin() + 64, 32, -2.0F);
  return x;
}

std::vector<float> product(WeightBlocks blocks, const Matrix& matrix, const std::vector<float>& x, std::int64_t n_in,
                           std::int64_t n_out, std::int64_t n_rows) {
  const auto rows = hwy::AllocateAligned<RowBlock>(static_cast<std::size_t>(n_rows * n_in / kRowBlock));
  quantise_rows(x.data(), n_in, n_rows, rows.get());
  std::vector<float> y(static_cast<std::size_t>(n_rows * n_out), std::nanf(""));
  // As two threads would.
  for (const auto& [first, last] : {std::pair{std::int64_t{0}, n_out / 3}, std::pair{n_out / 3, n_out}}) {
    quantised_product(blocks, {.weights = matrix.blocks.data(),
                               .weight_stride = matrix.row_bytes,
                               .n_out = n_out,
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

class QuantisedProduct : public EveryIsa {
 protected:
  static void check(const WeightBlocksInfo& info, std::int64_t n_in, std::int64_t n_out,
                    std::initializer_list<std::int64_t> numbers_of_rows) {
    const Matrix matrix(info, n_in, n_out, static_cast<std::uint32_t>(n_in + n_out));
    for (const std::int64_t n_rows : numbers_of_rows) {
      const std::vector<float> x = random_rows(n_in, n_rows);
      const std::vector<double> exact = quantised(x);
      const std::vector<float> y = product(info.blocks, matrix, x, n_in, n_out, n_rows);
      for (std::int64_t r = 0; r < n_rows; ++r) {
        // The same bits alone.
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
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, QuantisedProduct, testing::ValuesIn(supported_isas()), isa_test_name);

}  // namespace
}  // namespace winnow::kernels
