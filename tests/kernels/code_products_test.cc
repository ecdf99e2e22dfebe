#include "kernels/attention/code_products.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <initializer_list>
#include <vector>

#include "kernels/entries/rotated_codes.h"
#include "kernels/entries/rows.h"
#include "kernels/simd/tiling.h"
#include "kernels/test_head.h"
#include "normal_numbers.h"

namespace winnow::kernels {
namespace {

using test::normal_numbers;

class CodeProducts : public EveryIsa {};

constexpr EntryType kTypes[] = {EntryType::kR4, EntryType::kR3, EntryType::kQ8_0};

// Rows of codes in memory of exactly their size, and the numbers that were coded, in double: [n][head_dim].
struct Codes {
  Codes(EntryType type, int n, int head_dim, unsigned seed) : n_rows(n), bytes(row_bytes(type, head_dim)) {
    const std::vector<float> source = normal_numbers(static_cast<std::size_t>(n * head_dim), seed);
    data.resize(static_cast<std::size_t>(n) * bytes);
    std::vector<float> row(static_cast<std::size_t>(head_dim));
    for (int i = 0; i < n; ++i) {
      std::byte* to = data.data() + static_cast<std::size_t>(i) * bytes;
      store_row(type, source.data() + std::ptrdiff_t{i} * head_dim, to, head_dim);
      if (code_bits(type) > 0) {
        load_rotated_row(type, to, row.data(), head_dim);
      } else {
        load_row(type, to, row.data(), head_dim);
      }
      numbers.insert(numbers.end(), row.begin(), row.end());
    }
  }
  CodedRows rows() const { return {data.data(), bytes, n_rows}; }
  // Returns the rows in pieces of the given sizes; the last piece has the remaining rows.
  std::vector<CodedRows> pieces(std::initializer_list<int> first_sizes) const {
    std::vector<CodedRows> result;
    int at = 0;
    const auto add = [&](int n) {
      result.push_back({data.data() + static_cast<std::size_t>(at) * bytes, bytes, n});
      at += n;
    };
    for (const int n : first_sizes) add(n);
    add(n_rows - at);
    return result;
  }

  int n_rows;
  std::size_t bytes;
  std::vector<std::byte> data;
  std::vector<double> numbers;
};

// Has the products fetch nothing ahead.
struct Nothing {
  ReadOrder order = {};
  Ahead ahead = Ahead(order);
};

void expect_scores(EntryType type, int n, int n_group, int head_dim) {
  SCOPED_TRACE(testing::Message() << n << " keys of " << entry_type_name(type) << ", " << n_group << " heads of "
                                  << head_dim);
  const Codes keys(type, n, head_dim, 1);
  const std::vector<float> q = normal_numbers(static_cast<std::size_t>(n_group * head_dim), 2);
  TestScratch packed(coded_queries_bytes(n_group, head_dim));
  pack_coded_queries(type, q.data(), n_group, head_dim, packed.span().data());
  const float untouched = 1e9F;
  std::vector<float> scores(static_cast<std::size_t>(n_group * kEntryBlock), untouched);
  Nothing nothing;
  score_codes(type, packed.span().data(), n_group, head_dim, keys.rows(), nothing.ahead, scores.data());
  for (int g = 0; g < n_group; ++g) {
    for (int i = 0; i < kEntryBlock; ++i) {
      const float score = scores[static_cast<std::size_t>(g * kEntryBlock + i)];
      if (i >= n) {
        ASSERT_EQ(score, untouched) << "behind the last key";
        continue;
      }
      double expected = 0;
      for (int c = 0; c < head_dim; ++c) {
        expected += static_cast<double>(q[static_cast<std::size_t>(g * head_dim + c)]) *
                    keys.numbers[static_cast<std::size_t>(i * head_dim + c)];
      }
      // Errors of a hundredth of a coordinate's deviation (16-bit numbers: a 20,000th) add up as a random walk.
      const double error = code_bits(type) > 0 ? 0.05 : 2e-4;
      ASSERT_NEAR(static_cast<double>(score), expected, error * std::sqrt(head_dim)) << "head " << g << ", key " << i;
    }
  }
}

TEST_P(CodeProducts, ScoresMatchTheReference) {
  if (!has_code_products(EntryType::kR4, 64)) GTEST_SKIP() << "no products of bytes here";
  for (const EntryType type : kTypes) {
    for (const int head_dim : {64, 128, 192, 256, 512}) {
      for (int n_group = 1; n_group <= 13; ++n_group) expect_scores(type, 32, n_group, head_dim);
    }
    for (int n = 1; n <= kEntryBlock; ++n) expect_scores(type, n, 3, 64);
    expect_scores(type, 32, kMaxGroup, 64);
  }
  for (const int head_dim : {32, 96}) expect_scores(EntryType::kQ8_0, 33, 3, head_dim);
}

// Fills the stack with NaNs, so that a function that reads memory before writing it shows.
[[gnu::noinline]] void leave_nothing_on_the_stack() {
  volatile float there[16384];
  for (volatile float& number : there) number = std::nanf("");
}

// A few weights are about 1, and many small ones add up to as much.
void expect_sums(EntryType type, int n, int n_group, int head_dim, std::initializer_list<int> first_sizes = {}) {
  SCOPED_TRACE(testing::Message() << n << " values of " << entry_type_name(type) << " in " << first_sizes.size() + 1
                                  << " pieces, " << n_group << " heads of " << head_dim);
  const Codes values(type, n, head_dim, 3);
  std::vector<float> weights(static_cast<std::size_t>(n_group * kEntryBlock), std::nanf(""));
  for (int g = 0; g < n_group; ++g) {
    for (int i = 0; i < n; ++i) {
      weights[static_cast<std::size_t>(g * kEntryBlock + i)] =
          i % 32 == 31 - g ? 1.0F : 2e-3F * static_cast<float>(i % 5);
    }
  }
  std::vector<float> sums = normal_numbers(static_cast<std::size_t>(n_group * head_dim), 4);
  const std::vector<float> before = sums;
  std::vector<CodedRows> pieces = values.pieces(first_sizes);
  Nothing nothing;
  leave_nothing_on_the_stack();
  add_codes(type, weights.data(), n_group, head_dim, pieces, nothing.ahead, sums.data());
  for (int g = 0; g < n_group; ++g) {
    for (int c = 0; c < head_dim; ++c) {
      const auto at = static_cast<std::size_t>(g * head_dim + c);
      double expected = static_cast<double>(before[at]);
      double squares = 0;
      for (int i = 0; i < n; ++i) {
        const auto w = static_cast<double>(weights[static_cast<std::size_t>(g * kEntryBlock + i)]);
        expected += w * values.numbers[static_cast<std::size_t>(i * head_dim + c)];
        squares += w * w;
      }
      const double error = code_bits(type) > 0 ? 0.02 : 2e-4;
      ASSERT_NEAR(static_cast<double>(sums[at]), expected, error * std::sqrt(squares)) << "head " << g << ", " << c;
    }
  }
}

TEST_P(CodeProducts, WeightedSumsMatchTheReference) {
  if (!has_code_products(EntryType::kR4, 64)) GTEST_SKIP() << "no products of bytes here";
  for (const EntryType type : kTypes) {
    for (const int head_dim : {64, 128, 192, 256, 512}) {
      for (int n_group = 1; n_group <= 13; ++n_group) expect_sums(type, 32, n_group, head_dim);
    }
    for (int n = 1; n <= kEntryBlock; ++n) expect_sums(type, n, 3, 64);
    for (int n = 97; n <= kEntryBlock; ++n) expect_sums(type, n, 3, 64, {32, 32, 32});
    for (int n = 29; n <= 60; ++n) expect_sums(type, n, 3, 64, {28});
    expect_sums(type, kEntryBlock, 7, 128, {4, 28, 60});
  }
  for (const int head_dim : {32, 96}) expect_sums(EntryType::kQ8_0, 33, 3, head_dim);
}

TEST_P(CodeProducts, NothingComesOfNothing) {
  if (!has_code_products(EntryType::kR4, 64)) GTEST_SKIP() << "no products of bytes here";
  for (const EntryType type : kTypes) {
    const Codes codes(type, 32, 64, 5);
    const std::vector<float> zeros(kEntryBlock, 0.0F);
    std::vector<float> sums(64, 1.0F), scores(kEntryBlock, 1.0F);
    std::vector<CodedRows> pieces = codes.pieces({});
    Nothing nothing;
    add_codes(type, zeros.data(), 1, 64, pieces, nothing.ahead, sums.data());
    EXPECT_EQ(sums, std::vector<float>(64, 1.0F));
    TestScratch packed(coded_queries_bytes(1, 64));
    pack_coded_queries(type, zeros.data(), 1, 64, packed.span().data());
    score_codes(type, packed.span().data(), 1, 64, codes.rows(), nothing.ahead, scores.data());
    EXPECT_EQ(std::vector<float>(scores.begin(), scores.begin() + 32), std::vector<float>(32, 0.0F));
  }
}

// The sums of bytes hold the largest numbers of a row times the largest ones of queries and weights.
TEST_P(CodeProducts, TheLargestIntegersFit) {
  if (!has_code_products(EntryType::kQ8_0, 64)) GTEST_SKIP() << "no products of bytes here";
  const std::vector<float> row(64, 1.0F), weights(kEntryBlock, 1.0F);
  const std::size_t bytes = row_bytes(EntryType::kQ8_0, 64);
  std::vector<std::byte> rows(kEntryBlock * bytes);
  for (int i = 0; i < kEntryBlock; ++i) store_row(EntryType::kQ8_0, row.data(), rows.data() + i * bytes, 64);
  std::vector<CodedRows> pieces = {{rows.data(), bytes, kEntryBlock}};
  std::vector<float> sums(64, 0.0F), scores(kEntryBlock);
  Nothing nothing;
  add_codes(EntryType::kQ8_0, weights.data(), 1, 64, pieces, nothing.ahead, sums.data());
  EXPECT_NEAR(sums[63], kEntryBlock, 0.1);
  TestScratch packed(coded_queries_bytes(1, 64));
  pack_coded_queries(EntryType::kQ8_0, row.data(), 1, 64, packed.span().data());
  score_codes(EntryType::kQ8_0, packed.span().data(), 1, 64, pieces[0], nothing.ahead, scores.data());
  EXPECT_NEAR(scores[kEntryBlock - 1], 64, 0.05);
}

TEST(CodeProductsOf, SmallBlocksHaveNone) {
  for (const int head_dim : {16, 32, 48, 80, 96}) {
    EXPECT_FALSE(has_code_products(EntryType::kR4, head_dim)) << head_dim;
    EXPECT_FALSE(has_code_products(EntryType::kR3, head_dim)) << head_dim;
  }
  for (const int head_dim : {16, 48, 80}) EXPECT_FALSE(has_code_products(EntryType::kQ8_0, head_dim)) << head_dim;
  EXPECT_FALSE(has_code_products(EntryType::kF16, 64));
}

INSTANTIATE_TEST_SUITE_P(Isa, CodeProducts, testing::ValuesIn(supported_isas()), isa_test_name);

}  // namespace
}  // namespace winnow::kernels
