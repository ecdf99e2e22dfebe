#include "eviction/evidence/pooling.h"

#include <gtest/gtest.h>

namespace winnow {
namespace {

using Row = std::vector<float>;

Row pooled(const Row& in, ScorePooling pool, int kernel) {
  Row out(in.size());
  pool_row(in, pool, kernel, out);
  return out;
}

TEST(PoolRow, MaxIgnoresWhatLiesOutside) {
  EXPECT_EQ(pooled({-3, -1, -2, -5}, ScorePooling::kMax, 3), (Row{-1, -1, -1, -2}));
}

TEST(PoolRow, AverageCountsZerosAndDividesByKernel) {
  EXPECT_EQ(pooled({3, 6, 9}, ScorePooling::kAverage, 3), (Row{3, 6, 5}));
}

TEST(PoolRow, NoneCopiesAndKernelMayExceedTheRow) {
  EXPECT_EQ(pooled({1, 2}, ScorePooling::kNone, 7), (Row{1, 2}));
  EXPECT_EQ(pooled({1, 4, 2}, ScorePooling::kMax, 101), (Row{4, 4, 4}));
  EXPECT_EQ(pooled({}, ScorePooling::kMax, 3), Row{});
}

TEST(PoolAndGroup, TheOrderMatters) {
  const Row columns = {0, 4, 0, /* second head */ 8, 0, 0};
  EvictionOptions options;
  options.set("kernel", "3");
  EXPECT_EQ(pool_and_group(columns, 2, options, GroupReduction::kMean), (Row{6, 6, 2}));
  EXPECT_EQ(pool_and_group(columns, 2, options, GroupReduction::kMax), (Row{8, 8, 4}));
  options.set("order", "group-then-pool");
  EXPECT_EQ(pool_and_group(columns, 2, options, GroupReduction::kMean), (Row{4, 4, 2}));
  EXPECT_EQ(group_only(columns, 2, GroupReduction::kMean), (Row{4, 2, 0}));
}

}  // namespace
}  // namespace winnow
