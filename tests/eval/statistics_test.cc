#include "eval/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace winnow::eval {
namespace {

std::vector<Observation> independent(const std::vector<double>& values) {
  std::vector<Observation> observations;
  for (const double value : values) observations.push_back({value});
  return observations;
}

TEST(BootstrapMean, CoversTheTrueMeanAsOftenAsItSays) {
  std::mt19937 random(7);
  std::normal_distribution<double> draw(3, 2);
  int covered = 0;
  constexpr int kTrials = 400;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<double> values(25);
    for (double& value : values) value = draw(random);
    const Interval interval = bootstrap_mean(independent(values), {.n_resamples = 500});
    covered += interval.low <= 3 && 3 <= interval.high;
  }
  EXPECT_GT(covered, kTrials * 0.915);
  EXPECT_LT(covered, kTrials * 0.985);
}

TEST(BootstrapMean, WidthIsThatOfTheNormalApproximation) {
  std::vector<double> values;
  for (int i = 0; i < 100; ++i) values.push_back(i % 10);  // deviation 2.872
  const Interval interval = bootstrap_mean(independent(values));
  EXPECT_DOUBLE_EQ(interval.mean, 4.5);
  EXPECT_NEAR(interval.high - interval.low, 2 * 1.96 * 2.8868 / 10, 0.1);
  EXPECT_EQ(interval.n_samples, 100);
  EXPECT_EQ(interval.n_clusters, 100);
}

TEST(BootstrapMean, PromptsOfABookCountAsOne) {
  // Five books of twenty equal prompts give five values, not a hundred.
  std::vector<Observation> clustered;
  std::vector<double> one_each;
  for (int book = 0; book < 5; ++book) {
    one_each.push_back(book);
    for (int i = 0; i < 20; ++i) clustered.push_back({static_cast<double>(book), "book" + std::to_string(book)});
  }
  const Interval of_books = bootstrap_mean(clustered), of_values = bootstrap_mean(independent(one_each));
  EXPECT_EQ(of_books.n_clusters, 5);
  EXPECT_NEAR(of_books.high - of_books.low, of_values.high - of_values.low, 0.15);
  for (Observation& observation : clustered) observation.cluster.clear();
  const Interval naive = bootstrap_mean(clustered);
  EXPECT_LT(naive.high - naive.low, 0.4 * (of_books.high - of_books.low));
}

TEST(BootstrapMean, TasksWeighTheSame) {
  std::vector<Observation> observations;
  for (int i = 0; i < 30; ++i) observations.push_back({1, "", "long"});
  observations.push_back({0, "", "short"});
  observations.push_back({0, "", "short"});
  const Interval interval = bootstrap_mean(observations);
  EXPECT_DOUBLE_EQ(interval.mean, 0.5);
}

TEST(BootstrapMean, AllRightIsNotCertain) {
  const Interval interval = bootstrap_mean(independent(std::vector<double>(10, 1)), {.is_share = true});
  EXPECT_DOUBLE_EQ(interval.mean, 1);
  EXPECT_NEAR(interval.low, 0.7225, 1e-3);  // Wilson, n = 10
  EXPECT_DOUBLE_EQ(interval.high, 1);
  EXPECT_NEAR(bootstrap_mean(independent(std::vector<double>(10, 0)), {.is_share = true}).high, 0.2775, 1e-3);
}

TEST(BootstrapMean, SharesStayBetweenNoneAndAll) {
  std::vector<double> values(12, 0);
  values[3] = 1;
  const Interval interval = bootstrap_mean(independent(values), {.is_share = true});
  EXPECT_EQ(interval.low, 0);
  EXPECT_LT(bootstrap_mean(independent(values)).low, 0);
  // One task is all right and one is all wrong: there is no variation to resample, which is not certainty.
  EXPECT_FALSE(bootstrap_mean(std::vector<Observation>{{1, "", "a"}, {1, "", "a"}, {0, "", "b"}, {0, "", "b"}},
                              {.is_share = true})
                   .has_bounds());
}

TEST(BootstrapMean, FewestSamples) {
  EXPECT_FALSE(bootstrap_mean({}).has_bounds());
  EXPECT_TRUE(std::isnan(bootstrap_mean({}).mean));
  const Interval one = bootstrap_mean(independent({0.25}));
  EXPECT_DOUBLE_EQ(one.mean, 0.25);
  EXPECT_FALSE(one.has_bounds());
  // Two prompts of one book allow no resampling of books, so prompts are resampled.
  const Interval book = bootstrap_mean(std::vector<Observation>{{0, "b"}, {1, "b"}});
  EXPECT_TRUE(book.has_bounds());
  EXPECT_EQ(book.n_clusters, 1);
}

TEST(BootstrapMean, SameDataSameInterval) {
  const auto values = independent({1, 5, 2, 8, 3});
  EXPECT_EQ(bootstrap_mean(values).low, bootstrap_mean(values).low);
}

// Returns pairs in which prompts differ much and methods little: unpaired intervals overlap, paired ones do not.
std::vector<Pair> close_pairs(int n) {
  std::mt19937 random(3);
  std::uniform_real_distribution<double> level(0.05, 0.9), noise(-0.01, 0.01);
  std::vector<Pair> pairs;
  for (int i = 0; i < n; ++i) {
    const double b = level(random);
    pairs.push_back({b * 0.93 + 0.02 * noise(random), b});
  }
  return pairs;
}

TEST(Comparison, PairsShowWhatMeansHide) {
  const std::vector<Pair> pairs = close_pairs(12);
  std::vector<Observation> a, b;
  for (const Pair& pair : pairs) {
    a.push_back({pair.a});
    b.push_back({pair.b});
  }
  EXPECT_GT(bootstrap_mean(a).high, bootstrap_mean(b).low);
  const Comparison ratio = compare_ratios(pairs);
  EXPECT_TRUE(ratio.is_clear);
  EXPECT_NEAR(ratio.difference.mean, 0.93, 0.005);
  EXPECT_EQ(ratio.n_less, 12);
  EXPECT_LT(ratio.difference.high, 1);
  const Comparison difference = compare_differences(pairs);
  EXPECT_LT(difference.difference.mean, 0);
  EXPECT_TRUE(difference.is_clear);
}

TEST(Comparison, EqualMethodsAreNotClear) {
  std::vector<Pair> pairs;
  for (int i = 0; i < 20; ++i) pairs.push_back({i % 2 * 1.0, (i + i / 2) % 2 * 1.0});
  EXPECT_FALSE(compare_differences(pairs).is_clear);
  std::vector<Pair> same(5, {0.0, 0.0});
  const Comparison equal = compare_ratios(same);
  EXPECT_EQ(equal.n_equal, 5);
  EXPECT_DOUBLE_EQ(equal.difference.mean, 1);
  EXPECT_FALSE(equal.is_clear);
}

TEST(SmallSamples, SayWhatTheyCannot) {
  EXPECT_NE(small_sample_warning(3, 3).find("too few"), std::string::npos);
  EXPECT_NE(small_sample_warning(40, 1).find("one source"), std::string::npos);
  EXPECT_NE(small_sample_warning(15, 10).find("large differences"), std::string::npos);
  EXPECT_EQ(small_sample_warning(48, 4), "");
}

}  // namespace
}  // namespace winnow::eval
