#include "kernels/entries/rows.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/entries/rotated_codes.h"
#include "kernels/reference/reference.h"
#include "kernels/statistics/bf16_statistics.h"
#include "kernels/statistics/projected_norms.h"
#include "kernels/test_head.h"
#include "normal_numbers.h"

namespace winnow::kernels {
namespace {

using test::normal_numbers;

constexpr EntryType kAllTypes[] = {EntryType::kF32, EntryType::kF16, EntryType::kBF16, EntryType::kQ8_0,
                                   EntryType::kQ4_0};

std::vector<std::uint16_t> stored_halves(const std::vector<float>& numbers) {
  std::vector<std::uint16_t> halves(numbers.size());
  store_row(EntryType::kF16, numbers.data(), reinterpret_cast<std::byte*>(halves.data()),
            static_cast<int>(numbers.size()));
  return halves;
}

class Rows : public EveryIsa {};

TEST_P(Rows, HalvesRoundAsIeeeSays) {
  std::vector<float> numbers = {0.0F,       -0.0F,      1.0F,         65504.0F,     65519.9F,
                                65520.0F,   -1e30F,     0x1p-14F,     0x1p-24F,     0x1p-25F,
                                0x1.8p-25F, 0x1.2p-24F, 0x1.ffcp-15F, 0x1.ffep-15F, HUGE_VALF};
  // Every float16, the midpoints between neighbours, and the numbers next to these.
  for (std::uint32_t h = 0; h < 0x7BFF; ++h) {
    const std::uint16_t bits[] = {static_cast<std::uint16_t>(h), static_cast<std::uint16_t>(h + 1)};
    const std::vector<double> pair = reference::row(EntryType::kF16, reinterpret_cast<const std::byte*>(bits), 2);
    const auto middle = static_cast<float>((pair[0] + pair[1]) / 2);
    for (const float x :
         {static_cast<float>(pair[0]), middle, std::nextafter(middle, 0.0F), std::nextafter(middle, 1e9F)}) {
      numbers.push_back(h % 2 ? x : -x);
    }
  }
  const std::vector<std::uint16_t> halves = stored_halves(numbers);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const double x = std::isinf(numbers[i]) ? 1e9 : static_cast<double>(numbers[i]);
    ASSERT_EQ(halves[i], reference::half_bits(x)) << numbers[i];
  }
  std::vector<float> back(halves.size());
  load_row(EntryType::kF16, reinterpret_cast<const std::byte*>(halves.data()), back.data(),
           static_cast<int>(back.size()));
  for (std::size_t i = 0; i < back.size(); ++i) {
    const double expected = reference::row(EntryType::kF16, reinterpret_cast<const std::byte*>(&halves[i]), 1)[0];
    ASSERT_EQ(static_cast<double>(back[i]), expected);
  }
}

TEST_P(Rows, NanStaysNan) {
  for (const EntryType type : {EntryType::kF32, EntryType::kF16, EntryType::kBF16}) {
    const std::vector<float> row(16, std::numeric_limits<float>::quiet_NaN());
    std::vector<std::byte> stored(row_bytes(type, 16));
    store_row(type, row.data(), stored.data(), 16);
    EXPECT_TRUE(std::isnan(reference::row(type, stored.data(), 16)[15])) << entry_type_name(type);
  }
}

TEST_P(Rows, LoadingMatchesTheReferenceBitForBit) {
  for (const EntryType type : kAllTypes) {
    for (const int n : {32, 64, 96, 256}) {
      const std::vector<float> row = normal_numbers(static_cast<std::size_t>(n), 3);
      std::vector<std::byte> stored(row_bytes(type, n));
      store_row(type, row.data(), stored.data(), n);
      std::vector<float> loaded(static_cast<std::size_t>(n), -99.0F);
      load_row(type, stored.data(), loaded.data(), n);
      const std::vector<double> expected = reference::row(type, stored.data(), n);
      for (std::size_t i = 0; i < loaded.size(); ++i) {
        ASSERT_EQ(loaded[i], static_cast<float>(expected[i])) << entry_type_name(type) << " " << i;
      }
    }
  }
  for (const EntryType type : {EntryType::kF32, EntryType::kF16, EntryType::kBF16}) {
    for (const int n : {0, 1, 3, 7, 15, 17, 33, 80}) {
      const std::vector<float> row = normal_numbers(static_cast<std::size_t>(n), 4);
      std::vector<std::byte> stored(static_cast<std::size_t>(n) * (type == EntryType::kF32 ? 4 : 2));
      store_row(type, row.data(), stored.data(), n);
      std::vector<float> loaded(static_cast<std::size_t>(n) + 1, -99.0F);
      load_row(type, stored.data(), loaded.data(), n);
      const std::vector<double> expected = reference::row(type, stored.data(), n);
      for (std::size_t i = 0; i < expected.size(); ++i) ASSERT_EQ(loaded[i], static_cast<float>(expected[i]));
      ASSERT_EQ(loaded.back(), -99.0F);
    }
  }
}

// Codes are looked up in vectors if their blocks are long enough.
TEST_P(Rows, LoadingCodesGivesTheirLevelsBitForBit) {
  for (const EntryType type : {EntryType::kR4, EntryType::kR3}) {
    for (const int n : {32, 48, 64, 80, 96, 128, 256}) {
      const std::vector<float> row = normal_numbers(static_cast<std::size_t>(n), 3);
      std::vector<std::byte> stored(row_bytes(type, n));
      store_row(type, row.data(), stored.data(), n);
      std::vector<float> loaded(static_cast<std::size_t>(n)), expected(loaded);
      load_row(type, stored.data(), loaded.data(), n);
      load_coded_row(type, stored.data(), expected.data(), n);
      EXPECT_EQ(loaded, expected) << entry_type_name(type) << " " << n;
    }
  }
}

TEST_P(Rows, StoringKeepsToTheTypesPrecision) {
  std::vector<float> row = normal_numbers(256, 5);
  std::fill_n(row.begin() + 32, 32, 0.0F);  // a block of zeros has no scale
  for (const EntryType type : kAllTypes) {
    std::vector<std::byte> stored(row_bytes(type, 256));
    store_row(type, row.data(), stored.data(), 256);
    const std::vector<double> back = reference::row(type, stored.data(), 256);
    for (std::size_t i = 0; i < row.size(); ++i) {
      const double x = static_cast<double>(row[i]);
      double greatest = 0;
      for (std::size_t j = i / 32 * 32; j < i / 32 * 32 + 32; ++j) {
        greatest = std::max(greatest, std::abs(static_cast<double>(row[j])));
      }
      double bound = 0;
      if (type == EntryType::kF16) bound = std::abs(x) * 0x1p-11 + 0x1p-25;
      if (type == EntryType::kBF16) bound = std::abs(x) * 0x1p-8;
      if (type == EntryType::kQ8_0) bound = greatest * (0.5 / 127 + 0x1p-10);
      if (type == EntryType::kQ4_0) bound = greatest * (1.0 / 8 + 0x1p-10);  // the far end is clamped to 7
      ASSERT_LE(std::abs(back[i] - x), bound) << entry_type_name(type) << " " << i;
    }
  }
}

TEST_P(Rows, BlockTypesHaveTheirLayout) {
  std::vector<float> row(32, 0.0F);
  row[0] = 127.0F;
  row[1] = -63.5F;  // halves go away from zero
  row[31] = 1.4F;
  std::vector<std::byte> q8(34);
  store_row(EntryType::kQ8_0, row.data(), q8.data(), 32);
  EXPECT_EQ(std::to_integer<int>(q8[0]) | std::to_integer<int>(q8[1]) << 8, 0x3C00);  // scale 1
  EXPECT_EQ(static_cast<std::int8_t>(q8[2]), 127);
  EXPECT_EQ(static_cast<std::int8_t>(q8[3]), -64);
  EXPECT_EQ(static_cast<std::int8_t>(q8[33]), 1);

  row.assign(32, 0.0F);
  row[3] = -8.0F;
  row[4] = 7.2F;
  row[19] = 2.6F;
  std::vector<std::byte> q4(18);
  store_row(EntryType::kQ4_0, row.data(), q4.data(), 32);
  EXPECT_EQ(std::to_integer<int>(q4[0]) | std::to_integer<int>(q4[1]) << 8, 0x3C00);
  EXPECT_EQ(std::to_integer<int>(q4[2 + 3]), 0 | (3 + 8) << 4);  // numbers 3 and 19 share a byte
  EXPECT_EQ(std::to_integer<int>(q4[2 + 4]), 15 | 8 << 4);
  EXPECT_EQ(std::to_integer<int>(q4[2 + 0]), 8 | 8 << 4);
}

// A model with damaged weights computes such numbers. Storing them in blocks was once undefined behaviour.
TEST_P(Rows, AnyNumberCanBeStored) {
  const float kNan = std::numeric_limits<float>::quiet_NaN(), kInfinity = std::numeric_limits<float>::infinity();
  const float kSmallest = std::numeric_limits<float>::denorm_min(), kLargest = std::numeric_limits<float>::max();
  for (const EntryType type : kAllTypes) {
    for (const float odd : {kNan, -kNan, kInfinity, -kInfinity, kSmallest, -3 * kSmallest, kLargest, -kLargest}) {
      for (const int n_odd : {1, 2, 32}) {
        std::vector<float> row = n_odd == 2 ? normal_numbers(32, 9) : std::vector<float>(32, 0.0F);
        std::fill(row.begin() + 5, row.begin() + std::min(5 + n_odd, 32), odd);
        std::vector<std::byte> stored(row_bytes(type, 32));
        store_row(type, row.data(), stored.data(), 32);
        std::vector<float> loaded(32);
        load_row(type, stored.data(), loaded.data(), 32);
        if (n_odd == 2 || std::abs(odd) > 1 || std::isnan(odd)) continue;
        for (const float value : loaded) EXPECT_LT(std::abs(value), 1e-30F) << entry_type_name(type);
      }
    }
  }
}

TEST_P(Rows, NormsMatchTheReference) {
  for (const EntryType type : kAllTypes) {
    for (const int head_dim : {32, 64, 96, 128, 256, 512}) {
      const AttentionShape shape = test_shape(1, head_dim, type);
      for (const int n : {0, 1, 33, 100}) {
        const TestHead head(shape, {.n_entries = n, .run_sizes = {32, 3}, .origin = n == 100 ? 4.0F : 0.0F}, 6);
        std::vector<float> out(static_cast<std::size_t>(n));
        const auto expect = [&](const std::vector<double>& expected) {
          for (std::size_t i = 0; i < out.size(); ++i) {
            ASSERT_NEAR(static_cast<double>(out[i]), expected[i], 2e-6 * expected[i]);
          }
        };
        value_l1_norms(shape, head.entries(), out);
        expect(reference::value_l1_norms(shape, head.entries()));
        value_l2_norms(shape, head.entries(), out);
        expect(reference::value_l2_norms(shape, head.entries()));
        key_l2_norms(shape, head.entries(), out);
        expect(reference::key_l2_norms(shape, head.entries()));
      }
    }
  }
}

TEST_P(Rows, ProjectedNormsMatchTheReference) {
  struct Case {
    int n_group, head_dim, n_embd, n_entries;
    EntryType type;
  };
  for (const Case& c : {Case{3, 64, 192, 100, EntryType::kF16}, Case{1, 16, 1, 5, EntryType::kF32},
                        Case{2, 80, 67, 33, EntryType::kF16}, Case{2, 128, 100, 200, EntryType::kF32},
                        Case{2, 64, 65, 31, EntryType::kQ8_0}, Case{1, 256, 64, 1, EntryType::kBF16},
                        Case{2, 64, 64, 0, EntryType::kF16}, Case{kMaxGroup, 64, 33, 10, EntryType::kF16}}) {
    const AttentionShape shape = test_shape(c.n_group, c.head_dim, c.type);
    const TestHead head(shape, {.n_entries = c.n_entries, .run_sizes = {32}}, 6);
    const std::vector<float> w_o = normal_numbers(static_cast<std::size_t>(c.n_group * c.head_dim * c.n_embd), 7);
    std::vector<float> out(static_cast<std::size_t>(c.n_entries));
    projected_value_norms(shape, head.entries(), w_o, c.n_embd, out);
    const std::vector<double> expected = reference::projected_value_norms(shape, head.entries(), w_o, c.n_embd);
    // Rounding to bfloat16 (2^-9) leaves each of n_embd sums off, in either direction.
    const double tolerance = prefers_bf16_norms(shape) ? 0.02 / std::sqrt(c.n_embd) : 5e-6;
    for (std::size_t i = 0; i < out.size(); ++i)
      ASSERT_NEAR(static_cast<double>(out[i]), expected[i], tolerance * expected[i] + 1e-6);
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, Rows, testing::ValuesIn(bf16_isas()), isa_test_name);

}  // namespace
}  // namespace winnow::kernels
