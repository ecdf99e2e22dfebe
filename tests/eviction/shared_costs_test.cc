// Users that share work pay for it as if alone, whoever did it. Time is a counter here.
#include "eviction/evidence/shared_costs.h"

#include <gtest/gtest.h>

#include "eviction/cut/layer_scoring.h"
#include "eviction/random_cache.h"

namespace winnow {
namespace {

TEST(SharedCosts, EveryUserPaysOnceForWhatItUses) {
  double now = 0;
  SharedCosts costs([&] { return now; });
  SharedCosts::Item statistics, scores, others;
  const auto use_statistics = [&] { costs.use(statistics, [&] { now += 10; }); };
  const auto use_scores = [&] {
    costs.use(scores, [&] {
      now += 1;
      use_statistics();
      now += 2;
    });
  };
  // The first user does the work, so its own clock measures all of it.
  costs.begin_user();
  use_scores();
  use_statistics();
  EXPECT_EQ(now, 13);
  EXPECT_EQ(costs.reused_seconds(), 0);
  // The second user finds the work done. Statistics are a part of the scores and cost no more.
  costs.begin_user();
  use_scores();
  use_statistics();
  EXPECT_EQ(now, 13);
  EXPECT_EQ(costs.reused_seconds(), 13);
  // The third user does other work with the same statistics.
  costs.begin_user();
  costs.use(others, [&] {
    use_statistics();
    now += 5;
  });
  EXPECT_EQ(now, 18);
  EXPECT_EQ(costs.reused_seconds(), 10);
  costs.begin_user();
  EXPECT_EQ(costs.reused_seconds(), 0);
}

TEST(SharedCosts, WorkThatFailsIsTriedAgain) {
  double now = 0;
  SharedCosts costs([&] { return now; });
  SharedCosts::Item item;
  costs.begin_user();
  EXPECT_THROW(costs.use(item, [] { throw 1; }), int);
  costs.use(item, [&] { now += 4; });
  costs.begin_user();
  costs.use(item, [] { FAIL() << "it was made"; });
  EXPECT_EQ(costs.reused_seconds(), 4);
}

// Every reading of the clock is a second: a scoring takes some, and each cut pays for as many.
TEST(SharedCosts, CutsOfALayerPayForScoringAlike) {
  const testing::RandomCache cache(1, 2, 2, 16, 60, 1);
  const EvictionOptions snapkv = EvictionOptions::parse("ada-snapkv:window=5");
  const EvictionOptions critical = EvictionOptions::parse("tova:window=5,select=critical");
  EvidenceNeeds needs = Cut::needs(snapkv);
  needs |= Cut::needs(critical);
  cache.with_view(0, needs, [&](const LayerView& view) {
    double now = 0;
    LayerScoring scoring(view, needs.window_columns, testing::serial(), SharedCosts([&] { return ++now; }));
    const auto others_of = [&](const EvictionOptions& options) {
      scoring.costs().begin_user();
      scoring.scores(options);
      return scoring.costs().reused_seconds();
    };
    EXPECT_EQ(others_of(snapkv), 0);
    const double alone = now;
    EXPECT_GT(alone, 0);
    const double second = others_of(snapkv);
    EXPECT_EQ(now, alone);
    EXPECT_GT(second, 0);
    EXPECT_EQ(others_of(snapkv), second);
    // Another scorer computes its own scores, and finds only the check of the keys done.
    const double of_another = others_of(critical);
    EXPECT_GT(now, alone);
    EXPECT_LT(of_another, second);
  });
}

}  // namespace
}  // namespace winnow
