#include "eviction/refit/value_fit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "normal_numbers.h"

namespace winnow {
namespace {

constexpr int kHeadDim = 16;
constexpr float kScale = 0.25F;

std::vector<float> random_rows(int n, unsigned seed) {
  return test::normal_numbers(static_cast<std::size_t>(n * kHeadDim), seed);
}

double dot(const float* a, const float* b) {
  double sum = 0;
  for (int c = 0; c < kHeadDim; ++c) sum += static_cast<double>(a[c]) * static_cast<double>(b[c]);
  return sum;
}

// A head whose every second entry is kept, and reference rows with their attention over all entries.
struct Case {
  Case(int the_n_rows, int the_n_kept)
      : n_rows(the_n_rows),
        n_kept(the_n_kept),
        q(random_rows(n_rows, 1)),
        all_keys(random_rows(2 * n_kept, 2)),
        all_values(random_rows(2 * n_kept, 3)) {
    for (int i = 0; i < n_kept; ++i) {
      keys.insert(keys.end(), &all_keys[std::size_t(2 * i * kHeadDim)],
                  &all_keys[std::size_t(2 * i * kHeadDim)] + kHeadDim);
      values.insert(values.end(), &all_values[std::size_t(2 * i * kHeadDim)],
                    &all_values[std::size_t(2 * i * kHeadDim)] + kHeadDim);
    }
    for (int r = 0; r < n_rows; ++r) {
      std::vector<double> a;
      double sum = 0;
      for (int i = 0; i < 2 * n_kept; ++i) {
        a.push_back(std::exp(static_cast<double>(kScale) *
                             dot(&q[std::size_t(r * kHeadDim)], &all_keys[std::size_t(i * kHeadDim)])));
        sum += a.back();
      }
      log_sum_exp.push_back(static_cast<float>(std::log(sum)));
      for (int c = 0; c < kHeadDim; ++c) {
        double y = 0;
        for (int i = 0; i < 2 * n_kept; ++i)
          y += a[std::size_t(i)] / sum * static_cast<double>(all_values[std::size_t(i * kHeadDim + c)]);
        target.push_back(static_cast<float>(y));
      }
    }
  }

  bool fit(std::vector<float>& out, float lambda = 0.03F) const {
    out.assign(values.size(), std::nanf(""));
    return fit_values({n_rows, q.data(), log_sum_exp.data(), target.data()}, {n_kept, keys.data(), values.data()},
                      {.key_dim = kHeadDim, .value_dim = kHeadDim, .scale = kScale, .lambda = lambda}, out.data());
  }

  // Returns X in double precision, [n_rows][n_kept].
  std::vector<double> attention() const {
    std::vector<double> x;
    for (int r = 0; r < n_rows; ++r) {
      double sum = 0;
      const std::size_t first = x.size();
      for (int i = 0; i < n_kept; ++i) {
        x.push_back(std::exp(static_cast<double>(kScale) *
                             dot(&q[std::size_t(r * kHeadDim)], &keys[std::size_t(i * kHeadDim)])));
        sum += x.back();
      }
      for (std::size_t i = first; i < x.size(); ++i) x[i] /= sum;
    }
    return x;
  }

  // Returns || Y - X c ||^2.
  double error(const std::vector<float>& c) const {
    const std::vector<double> x = attention();
    double sum = 0;
    for (int r = 0; r < n_rows; ++r) {
      for (int col = 0; col < kHeadDim; ++col) {
        double y = static_cast<double>(target[std::size_t(r * kHeadDim + col)]);
        for (int i = 0; i < n_kept; ++i)
          y -= x[std::size_t(r * n_kept + i)] * static_cast<double>(c[std::size_t(i * kHeadDim + col)]);
        sum += y * y;
      }
    }
    return sum;
  }

  int n_rows, n_kept;
  std::vector<float> q, all_keys, all_values, keys, values, log_sum_exp, target;
};

// The solution of (X^T X + r I) (C - V) = X^T (Y - X V) is checked by its residual in double precision.
TEST(ValueFit, SolvesTheNormalEquationsFromEitherSide) {
  for (const auto& [n_rows, n_kept] :
       {std::pair(200, 60), std::pair(60, 200), std::pair(97, 97), std::pair(5, 1), std::pair(1, 5)}) {
    const Case head(n_rows, n_kept);
    std::vector<float> c;
    ASSERT_TRUE(head.fit(c));
    const std::vector<double> x = head.attention();
    double squares = 0;
    for (const double a : x) squares += a * a;
    const double ridge = 0.03 * squares / n_kept + 1e-12;
    for (int col = 0; col < kHeadDim; ++col) {
      std::vector<double> rest;  // Y - X C
      for (int r = 0; r < n_rows; ++r) {
        double y = static_cast<double>(head.target[std::size_t(r * kHeadDim + col)]);
        for (int i = 0; i < n_kept; ++i)
          y -= x[std::size_t(r * n_kept + i)] * static_cast<double>(c[std::size_t(i * kHeadDim + col)]);
        rest.push_back(y);
      }
      for (int i = 0; i < n_kept; ++i) {
        double gradient = 0;
        for (int r = 0; r < n_rows; ++r) gradient += x[std::size_t(r * n_kept + i)] * rest[std::size_t(r)];
        const std::size_t at = std::size_t(i * kHeadDim + col);
        const double moved = static_cast<double>(c[at]) - static_cast<double>(head.values[at]);
        ASSERT_NEAR(gradient / ridge, moved, 2e-3) << n_rows << " rows, " << n_kept << " kept";
      }
    }
  }
}

TEST(ValueFit, TheOutputComesNearer) {
  const Case head(150, 80);
  std::vector<float> c;
  ASSERT_TRUE(head.fit(c));
  EXPECT_LT(head.error(c), 0.3 * head.error(head.values));
  std::vector<float> stiff;
  ASSERT_TRUE(head.fit(stiff, 1e6F));
  EXPECT_NEAR(head.error(stiff), head.error(head.values), 1e-2 * head.error(head.values));
}

TEST(ValueFit, AnEntryThatNoRowSeesStaysAsItIs) {
  Case head(40, 20);
  for (int c = 0; c < kHeadDim; ++c) head.keys[std::size_t(c)] = -200.0F * head.q[std::size_t(c)];
  for (int r = 1; r < head.n_rows; ++r) std::copy_n(head.q.begin(), kHeadDim, head.q.begin() + r * kHeadDim);
  std::vector<float> c;
  ASSERT_TRUE(head.fit(c));
  for (int i = 0; i < kHeadDim; ++i) EXPECT_FLOAT_EQ(c[std::size_t(i)], head.values[std::size_t(i)]);
}

TEST(ValueFit, ARowThatSeesNothingIsLeftOut) {
  Case head(40, 20);
  std::vector<float> before, after;
  ASSERT_TRUE(head.fit(before));
  head.q.insert(head.q.end(), head.q.begin(), head.q.begin() + kHeadDim);
  head.log_sum_exp.push_back(std::numeric_limits<float>::infinity());
  head.target.insert(head.target.end(), kHeadDim, 1e3F);
  ++head.n_rows;
  ASSERT_TRUE(head.fit(after));
  for (std::size_t i = 0; i < after.size(); ++i) ASSERT_NEAR(after[i], before[i], 1e-4F);
}

TEST(ValueFit, WhatIsNotFiniteKeepsTheValues) {
  Case head(40, 20);
  std::vector<float> c;
  head.target[3] = std::nanf("");
  EXPECT_FALSE(head.fit(c));
  EXPECT_EQ(c, head.values);
  head.n_rows = 0;
  EXPECT_FALSE(head.fit(c));
  EXPECT_EQ(c, head.values);
}

}  // namespace
}  // namespace winnow
