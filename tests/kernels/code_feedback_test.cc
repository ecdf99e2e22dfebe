#include "kernels/entries/code_feedback.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/entries/rotated_codes.h"
#include "kernels/reference/reference.h"
#include "kernels/test_head.h"
#include "normal_numbers.h"

namespace winnow::kernels {
namespace {

using test::normal_numbers;

constexpr EntryType kCoded[] = {EntryType::kR4, EntryType::kR3};
constexpr int kHeadSizes[] = {16, 48, 64, 80, 128, 256};

std::vector<double> rotated(std::vector<float> row) {
  rotate_row(row.data(), row.data(), static_cast<int>(row.size()));
  return {row.begin(), row.end()};
}

// Queries like those of attention: a few directions hold most of their length, and their mean is not zero.
struct Queries {
  Queries(int dim, int n, unsigned seed) : head_dim(dim), rows(static_cast<std::size_t>(n)) {
    constexpr int kDirections = 6;
    const auto size = static_cast<std::size_t>(dim);
    const std::vector<float> directions = normal_numbers(kDirections * size, 5);
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (std::vector<float>& row : rows) {
      row.assign(size, 0.0F);
      for (float& x : row) x = 0.3F * normal(random);
      for (std::size_t k = 0; k < kDirections; ++k) {
        const float along = normal(random) + (k == 0 ? 1.0F : 0.0F);
        for (std::size_t i = 0; i < size; ++i) row[i] += along * directions[k * size + i];
      }
    }
  }

  std::vector<double> moment() const {
    const auto n = static_cast<std::size_t>(head_dim);
    std::vector<double> m(n * n);
    for (const std::vector<float>& q : rows) {
      for (std::size_t i = 0; i < n; ++i) {
        for (std::size_t j = 0; j < n; ++j) {
          m[i * n + j] += static_cast<double>(q[i]) * static_cast<double>(q[j]) / static_cast<double>(rows.size());
        }
      }
    }
    return m;
  }

  // Returns the mean of (q . (key as it is read - key))^2.
  double squared_error(EntryType type, const std::vector<std::byte>& stored, const float* key) const {
    std::vector<float> read(static_cast<std::size_t>(head_dim));
    load_coded_row(type, stored.data(), read.data(), head_dim);
    double sum = 0;
    for (const std::vector<float>& q : rows) {
      double error = 0;
      for (std::size_t i = 0; i < read.size(); ++i) {
        error += static_cast<double>(q[i]) * (static_cast<double>(read[i]) - static_cast<double>(key[i]));
      }
      sum += error * error;
    }
    return sum / static_cast<double>(rows.size());
  }

  int head_dim;
  std::vector<std::vector<float>> rows;
};

std::vector<std::vector<std::byte>> stored(EntryType type, const CodeFeedback& feedback,
                                           const std::vector<float>& rows) {
  const int n = feedback.head_dim();
  std::vector<std::vector<std::byte>> bytes(rows.size() / static_cast<std::size_t>(n),
                                            std::vector<std::byte>(row_bytes(type, n)));
  std::vector<std::byte*> targets;
  for (std::vector<std::byte>& row : bytes) targets.push_back(row.data());
  store_coded_rows(type, feedback, rows.data(), targets);
  return bytes;
}

class Feedback : public EveryIsa {};

// Checks codes against the definition: given the errors of the numbers coded so far, e'M e is least for certain errors
// of the remaining numbers, and the next number is coded at that minimum.
TEST_P(Feedback, CodesEachNumberAtTheMinimumOfWhatIsFree) {
  for (const EntryType type : kCoded) {
    for (const int n : {16, 64, 80}) {
      const auto size = static_cast<std::size_t>(n);
      const Queries queries(n, 3 * n, 1);
      const std::vector<double> moment = queries.moment();
      const CodeFeedback feedback = *CodeFeedback::of(moment, n);
      // M in rotated coordinates, damped, in the order of steps: column by column, then row by row.
      std::vector<std::vector<double>> m(size, std::vector<double>(size));
      for (std::size_t j = 0; j < size; ++j) {
        for (std::size_t i = 0; i < size; ++i) m[j][i] = moment[i * size + j];
        m[j] = rotated({m[j].begin(), m[j].end()});
      }
      std::vector<std::vector<double>> both(size, std::vector<double>(size));
      double trace = 0;
      for (std::size_t i = 0; i < size; ++i) {
        std::vector<float> column(size);
        for (std::size_t j = 0; j < size; ++j) column[j] = static_cast<float>(m[j][i]);
        both[i] = rotated(column);
        trace += both[i][i];
      }
      const auto order = [&](std::size_t step) { return static_cast<std::size_t>(feedback.order()[step]); };
      for (std::size_t step = 0; step + 1 < size; ++step) {
        EXPECT_GE(both[order(step)][order(step)], both[order(step + 1)][order(step + 1)] * 0.9999) << step;
      }

      const std::vector<float> row = normal_numbers(size, 7, 0.5F, 2.0F);
      const std::vector<std::byte> bytes = stored(type, feedback, row)[0];
      std::vector<std::uint8_t> codes(size);
      std::vector<float> scales(size / static_cast<std::size_t>(code_block(n)));
      unpack_codes(type, bytes.data(), n, codes, scales);
      const std::vector<double> x = rotated(row);
      const int half = 1 << (code_bits(type) - 1);
      const auto level = [&](int code, std::size_t i) {
        const auto at = static_cast<std::size_t>(code < half ? half - 1 - code : code - half);
        const auto magnitude = static_cast<double>(code_magnitudes(code_bits(type))[at]);
        return (code < half ? -magnitude : magnitude) *
               static_cast<double>(scales[i / static_cast<std::size_t>(code_block(n))]);
      };

      std::vector<double> errors;  // x - coded, of the steps so far
      for (std::size_t step = 0; step < size; ++step) {
        // With M's part F of the free numbers and B between free and coded ones, finds the errors e that minimise
        // e'F e / 2 + e'B errors.
        const std::size_t n_free = size - step;
        std::vector<std::vector<double>> a(n_free, std::vector<double>(n_free + 1));
        for (std::size_t i = 0; i < n_free; ++i) {
          for (std::size_t j = 0; j < n_free; ++j) {
            a[i][j] = both[order(step + i)][order(step + j)] + (i == j ? 0.1 * trace / n : 0);
          }
          for (std::size_t s = 0; s < step; ++s) a[i][n_free] -= both[order(step + i)][order(s)] * errors[s];
        }
        for (std::size_t i = n_free; i-- > 1;) {  // eliminates from the last unknown down to the first
          for (std::size_t k = 0; k < i; ++k) {
            const double factor = a[k][i] / a[i][i];
            for (std::size_t j = 0; j <= n_free; ++j) a[k][j] -= factor * a[i][j];
          }
        }
        const std::size_t at = order(step);
        const double target = x[at] - a[0][n_free] / a[0][0];
        const double distance = std::abs(target - level(codes[at], at));
        for (int code = 0; code < 2 * half; ++code) {
          EXPECT_LE(distance, std::abs(target - level(code, at)) + 1e-3)
              << entry_type_name(type) << ", head size " << n << ", step " << step << ", code " << code;
        }
        errors.push_back(x[at] - level(codes[at], at));
      }
    }
  }
}

// The queries differ from those that the moment was computed from.
TEST_P(Feedback, ScoresAreLessWrong) {
  for (const EntryType type : kCoded) {
    for (const int n : kHeadSizes) {
      const auto size = static_cast<std::size_t>(n);
      const CodeFeedback feedback = *CodeFeedback::of(Queries(n, 4 * n, 1).moment(), n);
      const Queries others(n, 200, 2);
      constexpr std::size_t kRows = 40;
      const std::vector<float> rows = normal_numbers(kRows * size, 3);
      const auto with = stored(type, feedback, rows);
      double plain_error = 0, error = 0;
      for (std::size_t r = 0; r < kRows; ++r) {
        std::vector<std::byte> plain(row_bytes(type, n));
        store_coded_row(type, rows.data() + r * size, plain.data(), n);
        plain_error += others.squared_error(type, plain, rows.data() + r * size);
        error += others.squared_error(type, with[r], rows.data() + r * size);
      }
      EXPECT_LT(error, 0.6 * plain_error) << entry_type_name(type) << ", head size " << n;
    }
  }
}

TEST_P(Feedback, QueriesOfAllDirectionsAlikeChangeNothing) {
  for (const EntryType type : kCoded) {
    for (const int n : kHeadSizes) {
      std::vector<double> moment(static_cast<std::size_t>(n) * static_cast<std::size_t>(n));
      for (int i = 0; i < n; ++i) moment[static_cast<std::size_t>(i * n + i)] = 2;
      const std::vector<float> row = normal_numbers(static_cast<std::size_t>(n), 4);
      std::vector<std::byte> plain(row_bytes(type, n));
      store_coded_row(type, row.data(), plain.data(), n);
      EXPECT_EQ(stored(type, *CodeFeedback::of(moment, n), row)[0], plain) << n;
    }
  }
}

TEST_P(Feedback, ARowIsTheSameInAnyCompany) {
  constexpr int kSize = 64;
  const CodeFeedback feedback = *CodeFeedback::of(Queries(kSize, 200, 1).moment(), kSize);
  const std::vector<float> rows = normal_numbers(std::size_t{33} * kSize, 6);
  for (const EntryType type : kCoded) {
    const auto together = stored(type, feedback, rows);
    for (std::size_t r = 0; r < together.size(); ++r) {
      const auto first = rows.begin() + static_cast<std::ptrdiff_t>(r) * kSize;
      EXPECT_EQ(stored(type, feedback, {first, first + kSize})[0], together[r]) << r;
    }
  }
}

TEST_P(Feedback, NumbersOfAnySizeAreCoded) {
  constexpr int kSize = 128;
  const CodeFeedback feedback = *CodeFeedback::of(Queries(kSize, 200, 1).moment(), kSize);
  for (const EntryType type : kCoded) {
    for (const float size : {0.0F, 1e-30F, 1e-6F, 1e4F, std::numeric_limits<float>::infinity()}) {
      std::vector<float> row = normal_numbers(kSize, 8), read(kSize);
      for (float& x : row) x = size == 0 ? 0.0F : x * size;
      load_coded_row(type, stored(type, feedback, row)[0].data(), read.data(), kSize);
      for (const float x : read) ASSERT_TRUE(std::isfinite(x)) << size;
      if (size == 0) {
        EXPECT_EQ(read, row);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, Feedback, testing::ValuesIn(vector_isas()), isa_test_name);

TEST(CodeFeedback, IsNotMadeOfWhatIsNoSecondMoment) {
  constexpr int kSize = 32;
  const std::vector<double> good = Queries(kSize, 100, 1).moment();
  EXPECT_TRUE(CodeFeedback::of(good, kSize));
  EXPECT_FALSE(CodeFeedback::of(std::vector<double>(good.size()), kSize)) << "no queries";
  for (const double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(), 1e300}) {
    std::vector<double> moment = good;
    moment[5 * kSize + 5] = bad;
    EXPECT_FALSE(CodeFeedback::of(moment, kSize)) << bad;
  }
  std::vector<double> negative = good;
  for (double& x : negative) x = -x;
  EXPECT_FALSE(CodeFeedback::of(negative, kSize));
  // The moment of a single query is a matrix of rank one, which is usable after damping.
  EXPECT_TRUE(CodeFeedback::of(Queries(kSize, 1, 1).moment(), kSize));
}

}  // namespace
}  // namespace winnow::kernels
