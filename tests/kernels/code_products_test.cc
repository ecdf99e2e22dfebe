#include "kernels/code_products.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/normal_numbers.h"
#include "kernels/rotated_codes.h"
#include "kernels/rows.h"
#include "kernels/test_head.h"
#include "kernels/tiling.h"

namespace winnow::kernels {
namespace {

class CodeProducts : public EveryIsa {};

// Rows of r4 in memory of exactly their size, and the numbers that were coded, in double: [n][head_dim].
struct Codes {
  Codes(int n, int head_dim, unsigned seed) : n_rows(n), bytes(row_bytes(EntryType::kR4, head_dim)) {
    const std::vector<float> source = normal_numbers(static_cast<std::size_t>(n * head_dim), seed);
    data.resize(static_cast<std::size_t>(n) * bytes);
    std::vector<float> row(static_cast<std::size_t>(head_dim));
    for (int i = 0; i < n; ++i) {
      std::byte* to = data.data() + static_cast<std::size_t>(i) * bytes;
      store_row(EntryType::kR4, source.data() + std::ptrdiff_t{i} * head_dim, to, head_dim);
      load_rotated_row(EntryType::kR4, to, row.data(), head_dim);
      numbers.insert(numbers.end(), row.begin(), row.end());
    }
  }
  CodedRows rows() const { return {data.data(), bytes, n_rows}; }

  int n_rows;
  std::size_t bytes;
  std::vector<std::byte> data;
  std::vector<double> numbers;
};

Ahead nothing_ahead() { return {nullptr, 0}; }

void expect_scores(int n, int n_group, int head_dim) {
  SCOPED_TRACE(testing::Message() << n << " keys, " << n_group << " heads of " << head_dim);
  const Codes keys(n, head_dim, 1);
  const std::vector<float> q = normal_numbers(static_cast<std::size_t>(n_group * head_dim), 2);
  TestScratch packed(coded_queries_bytes(n_group, head_dim));
  pack_coded_queries(q.data(), n_group, head_dim, packed.span().data());
  const float untouched = 1e9F;
  std::vector<float> scores(static_cast<std::size_t>(n_group * kEntryBlock), untouched);
  Ahead ahead = nothing_ahead();
  score_codes(packed.span().data(), n_group, head_dim, keys.rows(), ahead, scores.data());
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
      // Errors of a hundredth of a coordinate's deviation add up as a random walk.
      ASSERT_NEAR(static_cast<double>(score), expected, 0.05 * std::sqrt(head_dim)) << "head " << g << ", key " << i;
    }
  }
}

TEST_P(CodeProducts, ScoresMatchTheReference) {
  for (const int head_dim : {64, 128, 192, 256, 512}) {
    if (!has_code_products(head_dim)) GTEST_SKIP() << "no products of bytes here";
    for (int n_group = 1; n_group <= 13; ++n_group) expect_scores(32, n_group, head_dim);
  }
  for (int n = 1; n <= kEntryBlock; ++n) expect_scores(n, 3, 64);
  expect_scores(32, kMaxGroup, 64);
}

// Some weights of about 1 and many small ones, which together are as much.
void expect_sums(int n, int n_group, int head_dim) {
  SCOPED_TRACE(testing::Message() << n << " values, " << n_group << " heads of " << head_dim);
  const Codes values(n, head_dim, 3);
  std::vector<float> weights(static_cast<std::size_t>(n_group * kEntryBlock), std::nanf(""));
  for (int g = 0; g < n_group; ++g) {
    for (int i = 0; i < n; ++i) {
      weights[static_cast<std::size_t>(g * kEntryBlock + i)] = i % 32 == g ? 1.0F : 2e-3F * static_cast<float>(i % 5);
    }
  }
  std::vector<float> sums = normal_numbers(static_cast<std::size_t>(n_group * head_dim), 4);
  const std::vector<float> before = sums;
  Ahead ahead = nothing_ahead();
  add_codes(weights.data(), n_group, head_dim, values.rows(), ahead, sums.data());
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
      ASSERT_NEAR(static_cast<double>(sums[at]), expected, 0.02 * std::sqrt(squares)) << "head " << g << ", " << c;
    }
  }
}

TEST_P(CodeProducts, WeightedSumsMatchTheReference) {
  for (const int head_dim : {64, 128, 192, 256, 512}) {
    if (!has_code_products(head_dim)) GTEST_SKIP() << "no products of bytes here";
    for (int n_group = 1; n_group <= 13; ++n_group) expect_sums(32, n_group, head_dim);
  }
  for (int n = 1; n <= kEntryBlock; ++n) expect_sums(n, 3, 64);
}

TEST_P(CodeProducts, NothingComesOfNothing) {
  if (!has_code_products(64)) GTEST_SKIP() << "no products of bytes here";
  const Codes codes(32, 64, 5);
  const std::vector<float> zeros(kEntryBlock, 0.0F);
  std::vector<float> sums(64, 1.0F), scores(kEntryBlock, 1.0F);
  Ahead ahead = nothing_ahead();
  add_codes(zeros.data(), 1, 64, codes.rows(), ahead, sums.data());
  EXPECT_EQ(sums, std::vector<float>(64, 1.0F));
  TestScratch packed(coded_queries_bytes(1, 64));
  pack_coded_queries(zeros.data(), 1, 64, packed.span().data());
  score_codes(packed.span().data(), 1, 64, codes.rows(), ahead, scores.data());
  EXPECT_EQ(std::vector<float>(scores.begin(), scores.begin() + 32), std::vector<float>(32, 0.0F));
}

TEST(CodeProductsOf, SmallBlocksHaveNone) {
  for (const int head_dim : {16, 32, 48, 80, 96}) EXPECT_FALSE(has_code_products(head_dim)) << head_dim;
}

INSTANTIATE_TEST_SUITE_P(Isa, CodeProducts, testing::ValuesIn(supported_isas()), isa_test_name);

}  // namespace
}  // namespace winnow::kernels
