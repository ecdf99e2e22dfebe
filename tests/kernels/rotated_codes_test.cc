#include "kernels/entries/rotated_codes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/entries/nearest_level.h"
#include "kernels/reference/reference.h"
#include "kernels/test_head.h"
#include "normal_numbers.h"

namespace winnow::kernels {
namespace {

constexpr EntryType kCoded[] = {EntryType::kR4, EntryType::kR3};
constexpr int kHeadSizes[] = {16, 48, 64, 80, 96, 128, 192, 256, 512};

std::vector<float> random_row(int n, unsigned seed, float magnitude = 1.0F) {
  return test::normal_numbers(static_cast<std::size_t>(n), seed, 0, magnitude);
}

std::vector<std::byte> stored(EntryType type, const std::vector<float>& row) {
  const auto n = static_cast<int>(row.size());
  std::vector<std::byte> bytes(row_bytes(type, n));
  store_coded_row(type, row.data(), bytes.data(), n);
  return bytes;
}

double squared_distance(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    sum += difference * difference;
  }
  return sum;
}

TEST(RotatedCodes, TheRotationIsItsOwnInverseAndKeepsLengths) {
  for (const int n : kHeadSizes) {
    const std::vector<float> x = random_row(n, 1);
    std::vector<float> y(x.size()), back(x.size());
    rotate_row(x.data(), y.data(), n);
    rotate_row(y.data(), back.data(), n);
    const std::vector<float> zero(x.size());
    EXPECT_NEAR(squared_distance(y, zero), squared_distance(x, zero), 1e-4 * n);
    EXPECT_GT(squared_distance(y, x), 0.1 * n) << "nothing was rotated";
    for (std::size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(back[i], x[i], 1e-5F) << n;
  }
}

class Rotation : public EveryIsa {};

// Number i of a block becomes the sum of (-1)^popcount(i & j) x[j], in the same steps on every instruction set.
TEST_P(Rotation, IsTheSameBitsOnEveryInstructionSet) {
  for (const int n : kHeadSizes) {
    const int block = code_block(n);
    const std::vector<float> x = random_row(n, 3);
    std::vector<float> y(x.size()), expected = x;
    rotate_row(x.data(), y.data(), n);
    for (float& number : expected) number *= 1.0F / std::sqrt(static_cast<float>(block));
    for (std::size_t stride = 1; stride < static_cast<std::size_t>(block); stride *= 2) {
      const std::vector<float> before = expected;
      for (std::size_t i = 0; i < expected.size(); ++i) {
        expected[i] = (i & stride) == 0 ? before[i] + before[i + stride] : before[i - stride] - before[i];
      }
    }
    EXPECT_EQ(y, expected) << n;
    y = x;
    rotate_row(y.data(), y.data(), n);
    EXPECT_EQ(y, expected) << n << ", in place";
  }
}

// Compares with the scalar definition of the nearest level.
TEST_P(Rotation, GivesCodesOfTheSameBits) {
  for (const EntryType type : kCoded) {
    const std::span<const float> levels = code_magnitudes(code_bits(type));
    std::vector<float> bounds;
    for (std::size_t i = 0; i + 1 < levels.size(); ++i) bounds.push_back((levels[i] + levels[i + 1]) / 2);
    for (const int n : {8, 16, 19, 64, 128}) {
      std::vector<float> y = random_row(n, 9);
      y[0] = bounds[1];  // not above it
      std::vector<std::int32_t> index(y.size() + 1, -5);
      nearest_levels(y.data(), n, bounds, index.data());
      for (std::size_t i = 0; i < y.size(); ++i) {
        EXPECT_EQ(index[i], std::count_if(bounds.begin(), bounds.end(), [&](float b) { return std::abs(y[i]) > b; }));
      }
      EXPECT_EQ(index.back(), -5) << n;
    }
    for (const int n : kHeadSizes) {
      const std::vector<float> row = random_row(n, 4, 3.0F);
      const std::vector<std::byte> here = stored(type, row);
      force_isa("");
      EXPECT_EQ(here, stored(type, row)) << n;
      force_isa(GetParam());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, Rotation, testing::ValuesIn(vector_isas()), isa_test_name);

TEST(RotatedCodes, BlocksAreTheLargestPowersOfTwo) {
  EXPECT_EQ(code_block(64), 64);
  EXPECT_EQ(code_block(128), 128);
  EXPECT_EQ(code_block(96), 32);
  EXPECT_EQ(code_block(80), 16);
  EXPECT_EQ(code_block(256), 128);
}

TEST(RotatedCodes, RowsComeBackAsTheDefinitionSays) {
  for (const EntryType type : kCoded) {
    for (const int n : kHeadSizes) {
      const std::vector<std::byte> bytes = stored(type, random_row(n, 2));
      std::vector<float> row(static_cast<std::size_t>(n));
      load_coded_row(type, bytes.data(), row.data(), n);
      const std::vector<double> expected = reference::row(type, bytes.data(), n);
      for (std::size_t i = 0; i < row.size(); ++i) ASSERT_NEAR(static_cast<double>(row[i]), expected[i], 1e-5);
    }
  }
}

TEST(RotatedCodes, EveryCodeIsTheNearestLevel) {
  for (const EntryType type : kCoded) {
    const int bits = code_bits(type), n = 64, half = 1 << (bits - 1);
    const std::vector<float> row = random_row(n, 3);
    std::vector<float> y(row.size());
    rotate_row(row.data(), y.data(), n);
    std::vector<std::uint8_t> codes(row.size());
    std::vector<float> scale(1);
    unpack_codes(type, stored(type, row).data(), n, codes, scale);
    for (std::size_t i = 0; i < y.size(); ++i) {
      const auto distance = [&](int code) {
        const auto magnitude =
            code_magnitudes(bits)[static_cast<std::size_t>(code < half ? half - 1 - code : code - half)];
        return std::abs(y[i] - scale[0] * (code < half ? -magnitude : magnitude));
      };
      for (int code = 0; code < 2 * half; ++code) ASSERT_LE(distance(codes[i]), distance(code) + 1e-6F) << i;
    }
  }
}

// The distortion of Lloyd and Max's codebooks for N(0, 1) is 0.009497 at 4 bits and 0.03454 at 3. Scales per block
// reduce it slightly.
TEST(RotatedCodes, NormalRowsLoseWhatTheCodebookLoses) {
  for (const EntryType type : kCoded) {
    double lost = 0;
    constexpr int kRows = 400, n = 128;
    for (unsigned seed = 0; seed < kRows; ++seed) {
      const std::vector<float> row = random_row(n, 100 + seed, 3.0F);
      std::vector<float> back(row.size());
      load_coded_row(type, stored(type, row).data(), back.data(), n);
      lost += squared_distance(row, back) / (9.0 * n * kRows);
    }
    const double expected = type == EntryType::kR4 ? 0.009497 : 0.03454;
    EXPECT_LT(lost, 1.03 * expected);
    EXPECT_GT(lost, 0.9 * expected);
  }
}

// This is the purpose of the rotation: one coordinate far larger than the others costs no more than a normal row.
TEST(RotatedCodes, AnOutlierDoesNotDrownTheOthers) {
  std::vector<float> row = random_row(128, 7);
  row[5] = 30.0F;
  std::vector<float> back(row.size());
  load_coded_row(EntryType::kR4, stored(EntryType::kR4, row).data(), back.data(), 128);
  const std::vector<float> zero(row.size());
  EXPECT_LT(squared_distance(row, back), 0.02 * squared_distance(row, zero));
}

TEST(RotatedCodes, ZerosAndTheLargestNumbersStayFinite) {
  for (const EntryType type : kCoded) {
    for (const float x : {0.0F, 1e-30F, 65504.0F, 3e38F}) {
      std::vector<float> row(64, x);
      std::vector<float> back(row.size());
      load_coded_row(type, stored(type, row).data(), back.data(), 64);
      for (const float y : back) ASSERT_TRUE(std::isfinite(y)) << x;
      if (x < 1e-20F) {
        EXPECT_EQ(back, std::vector<float>(64, 0.0F));
      }
    }
  }
}

}  // namespace
}  // namespace winnow::kernels
