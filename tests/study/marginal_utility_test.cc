#include "study/calibrate/marginal_utility.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

namespace winnow {
namespace {

std::vector<double> random_curve(std::mt19937& random, int n) {
  std::vector<double> oracle;
  std::vector<float> scores;
  std::exponential_distribution<double> importance(1.0);
  for (int i = 0; i < n; ++i) {
    oracle.push_back(importance(random));
    scores.push_back(static_cast<float>(importance(random)));
  }
  return loss_curve(oracle, scores);
}

TEST(LuKv, LossCurveIsWhatIsLeftOut) {
  // The ranking is 2, 0, 1. With equal scores the later token ranks first.
  EXPECT_EQ(loss_curve(std::vector<double>{1, 2, 4}, std::vector<float>{5, 1, 9}), (std::vector<double>{7, 3, 2, 0}));
  EXPECT_EQ(loss_curve(std::vector<double>{1, 2}, std::vector<float>{5, 5}), (std::vector<double>{3, 1, 0}));
}

TEST(LuKv, SurrogateIsTheGreatestConvexCurveBelow) {
  std::mt19937 random(1);
  for (int round = 0; round < 50; ++round) {
    const std::vector<double> loss = random_curve(random, 1 + round);
    const std::vector<double> surrogate = convex_surrogate(loss);
    ASSERT_NEAR(surrogate.front(), loss.front(), 1e-12 * loss.front());
    ASSERT_EQ(surrogate.back(), loss.back());
    for (std::size_t i = 0; i < loss.size(); ++i) {
      // By definition it is the lowest chord over i.
      double hull = loss[i];
      for (std::size_t a = 0; a < i; ++a) {
        for (std::size_t b = i + 1; b < loss.size(); ++b) {
          const double t = static_cast<double>(i - a) / static_cast<double>(b - a);
          hull = std::min(hull, loss[a] + t * (loss[b] - loss[a]));
        }
      }
      ASSERT_NEAR(surrogate[i], hull, 1e-9);
    }
  }
}

TEST(LuKv, GreedyIsExactOnConvexCurves) {
  std::mt19937 random(2);
  for (int round = 0; round < 30; ++round) {
    Curves raw, convex;
    for (int head = 0; head < 4; ++head) {
      raw.push_back(random_curve(random, 5 + 3 * head));
      convex.push_back(convex_surrogate(raw.back()));
    }
    for (std::int64_t total = 0; total <= 5 + 8 + 11 + 14; ++total) {
      const std::vector<std::int32_t> budgets = greedy_budgets(convex, total);
      ASSERT_EQ(std::accumulate(budgets.begin(), budgets.end(), std::int64_t{0}), total);
      ASSERT_NEAR(loss_at(convex, budgets), least_loss(convex, total), 1e-9);
      ASSERT_GE(loss_at(raw, budgets), least_loss(raw, total) - 1e-9);
    }
  }
}

TEST(LuKv, GreedyTiesGoToTheLowerHead) {
  const Curves curves = {{3, 2, 1, 0}, {3, 2, 1, 0}};
  EXPECT_EQ(greedy_budgets(curves, 1), (std::vector<std::int32_t>{1, 0}));
  EXPECT_EQ(greedy_budgets(curves, 4), (std::vector<std::int32_t>{3, 1}));
  EXPECT_EQ(greedy_budgets(curves, 99), (std::vector<std::int32_t>{3, 3}));
}

TEST(LuKv, ThePathIsTheGreedyBudgetsOfEveryTotal) {
  std::mt19937 random(3);
  Curves convex;
  for (int head = 0; head < 5; ++head) convex.push_back(convex_surrogate(random_curve(random, 4 + 5 * head)));
  const std::vector<std::int64_t> totals = {0, 1, 7, 7, 30, 64, 70, 99};
  const auto path = greedy_path(convex, totals);
  ASSERT_EQ(path.size(), totals.size());
  for (std::size_t i = 0; i < totals.size(); ++i) EXPECT_EQ(path[i], greedy_budgets(convex, totals[i])) << totals[i];
}

TEST(LuKv, LeastLossIsBruteForce) {
  const Curves curves = {{10, 9, 0}, {8, 3, 2}};
  EXPECT_EQ(least_loss(curves, 0), 18);
  EXPECT_EQ(least_loss(curves, 1), 13);
  EXPECT_EQ(least_loss(curves, 2), 8);  // both to the first head, which greedy on the raw curve would not find
  EXPECT_EQ(least_loss(curves, 3), 3);
}

TEST(LuKv, OracleIsTheLargestOverStepsAndGroup) {
  OracleImportance oracle(1, 2, {{1, 2}, {3, 1}});
  oracle.add_step(0, std::vector<float>{0.5F, 0.25F});
  oracle.add_step(1, std::vector<float>{0.25F, 0.125F});
  oracle.add_step(0, std::vector<float>{0.25F, 0.5F});
  EXPECT_EQ(oracle.importance(), (std::vector<std::vector<double>>{{0.75, 1.0}}));
}

}  // namespace
}  // namespace winnow
