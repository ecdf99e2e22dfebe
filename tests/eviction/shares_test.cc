#include "eviction/cut/shares.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>

namespace winnow {
namespace {

using Integers = std::vector<std::int64_t>;
using Numbers = std::vector<double>;

TEST(WaterFill, SharesByWeight) { EXPECT_EQ(water_fill(Numbers{1, 3}, Integers{100, 100}, 8), (Numbers{2, 6})); }

TEST(WaterFill, GivesWhatACapFreesInProportion) {
  // The first would get 10 of 20 but holds 4; the rest is shared 1 : 3.
  EXPECT_EQ(water_fill(Numbers{4, 1, 3}, Integers{4, 100, 100}, 20), (Numbers{4, 4, 12}));
  // The second clamp follows from the first.
  EXPECT_EQ(water_fill(Numbers{4, 3, 1}, Integers{4, 10, 100}, 20), (Numbers{4, 10, 6}));
}

TEST(WaterFill, RespectsFloors) {
  EXPECT_EQ(water_fill(Numbers{0.01, 1, 1}, Integers{6, 0, 0}, Integers{10, 10, 10}, 16), (Numbers{6, 5, 5}));
}

TEST(WaterFill, ZeroWeightsComeLastAndEvenly) {
  EXPECT_EQ(water_fill(Numbers{0, 1, 0}, Integers{10, 5, 10}, 5), (Numbers{0, 5, 0}));
  EXPECT_EQ(water_fill(Numbers{0, 1, 0}, Integers{10, 5, 10}, 9), (Numbers{2, 5, 2}));
  EXPECT_EQ(water_fill(Numbers{0, 1, 0}, Integers{1, 5, 10}, 9), (Numbers{1, 5, 3}));
  EXPECT_EQ(water_fill(Numbers{0, 0}, Integers{10, 10}, 5), (Numbers{2.5, 2.5}));
  EXPECT_EQ(water_fill(Numbers{}, Integers{}, 0), Numbers{});
}

struct Problem {
  Numbers weights;
  Integers floors, caps;
  std::int64_t total;
};

Problem random_problem(std::mt19937& random) {
  const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  Problem p;
  const int n = draw(1, 12);
  for (int i = 0; i < n; ++i) {
    p.weights.push_back(draw(0, 4) == 0 ? 0.0 : std::pow(10.0, draw(-6, 6)) * draw(1, 9));
    p.floors.push_back(draw(0, 2) == 0 ? draw(0, 20) : 0);
    p.caps.push_back(p.floors.back() + draw(0, 50));
  }
  const auto low = static_cast<int>(std::accumulate(p.floors.begin(), p.floors.end(), std::int64_t{0}));
  const auto high = static_cast<int>(std::accumulate(p.caps.begin(), p.caps.end(), std::int64_t{0}));
  p.total = draw(low, high);
  return p;
}

TEST(WaterFill, IsTheDefinition) {
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    const Problem p = random_problem(random);
    const Numbers x = water_fill(p.weights, p.floors, p.caps, p.total);
    EXPECT_NEAR(std::accumulate(x.begin(), x.end(), 0.0), static_cast<double>(p.total), 1e-9);
    double lambda = -1;  // the same for all items between floor and cap
    for (std::size_t i = 0; i < x.size(); ++i) {
      ASSERT_GE(x[i], static_cast<double>(p.floors[i]));
      ASSERT_LE(x[i], static_cast<double>(p.caps[i]));
      if (p.weights[i] == 0 || x[i] <= p.floors[i] + 1e-9 || x[i] >= p.caps[i] - 1e-9) continue;
      if (lambda >= 0) {
        ASSERT_NEAR(x[i] / p.weights[i], lambda, 1e-9 * lambda);
      }
      lambda = x[i] / p.weights[i];
    }
    for (std::size_t i = 0; i < x.size() && lambda >= 0; ++i) {
      if (p.floors[i] == p.caps[i]) continue;
      if (p.weights[i] == 0) {
        ASSERT_NEAR(x[i], p.floors[i], 1e-9);
      } else if (x[i] <= p.floors[i]) {
        ASSERT_LE(lambda * p.weights[i], p.floors[i] + 1e-6);
      } else if (x[i] >= p.caps[i]) {
        ASSERT_GE(lambda * p.weights[i], p.caps[i] - 1e-6);
      }
    }
  }
}

TEST(WaterFill, IsMonotone) {
  std::mt19937 random(2);
  for (int round = 0; round < 2000; ++round) {
    Problem p = random_problem(random);
    p.floors.assign(p.floors.size(), 0);
    const Numbers x = water_fill(p.weights, p.caps, p.total);
    if (p.total > 0) {
      const Numbers less = water_fill(p.weights, p.caps, p.total - 1);
      for (std::size_t i = 0; i < x.size(); ++i) ASSERT_LE(less[i], x[i] + 1e-9);
    }
    Numbers weights = p.weights;
    Integers caps = p.caps;
    weights.push_back(round % 7 == 0 ? 0.0 : 3.0);
    caps.push_back(30);
    const Numbers joined = water_fill(weights, caps, p.total);
    for (std::size_t i = 0; i < x.size(); ++i) ASSERT_LE(joined[i], x[i] + 1e-9);
  }
}

TEST(RoundShares, LargestRemainderTiesToTheLowerIndex) {
  EXPECT_EQ(round_shares(Numbers{1.5, 1.5, 1.0}, 4), (Integers{2, 1, 1}));
  EXPECT_EQ(round_shares(Numbers{0.2, 0.7, 1.1}, 2), (Integers{0, 1, 1}));
  EXPECT_EQ(round_shares(Numbers{1.0 / 3, 1.0 / 3, 1.0 / 3}, 1), (Integers{1, 0, 0}));
  // Numbers within 1e-9 of each other are equal, whichever is larger.
  EXPECT_EQ(round_shares(Numbers{0.5 - 1e-10, 0.5 + 1e-10}, 1), (Integers{1, 0}));
  EXPECT_EQ(round_shares(Numbers{0.5 - 1e-8, 0.5 + 1e-8}, 1), (Integers{0, 1}));
}

TEST(RoundShares, SnapsWhatIsNearlyWhole) {
  EXPECT_EQ(round_shares(Numbers{2.9999999999, 1.0000000001}, 4), (Integers{3, 1}));
  EXPECT_EQ(ceiling(3.0000000001), 3);
  EXPECT_EQ(ceiling(3.00000001), 4);
  EXPECT_EQ(ceiling(2.5), 3);
}

TEST(RoundShares, SumsExactlyWithinFloorAndCeiling) {
  std::mt19937 random(3);
  for (int round = 0; round < 2000; ++round) {
    const Problem p = random_problem(random);
    const Numbers x = water_fill(p.weights, p.floors, p.caps, p.total);
    const Integers rounded = round_shares(x, p.total);
    ASSERT_EQ(std::accumulate(rounded.begin(), rounded.end(), std::int64_t{0}), p.total);
    for (std::size_t i = 0; i < x.size(); ++i) {
      ASSERT_LE(rounded[i], ceiling(x[i]));  // a stage of the cascade relies on this
      ASSERT_GE(rounded[i], p.floors[i]);
      ASSERT_LE(rounded[i], p.caps[i]);
    }
  }
}

}  // namespace
}  // namespace winnow
