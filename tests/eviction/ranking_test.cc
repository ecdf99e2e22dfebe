#include "winnow/ranking.h"

#include <gtest/gtest.h>

#include <limits>

#include "eviction/random_cache.h"
#include "winnow/error.h"

namespace winnow {
namespace {

using testing::RandomCache;
using testing::serial;

// Head 0 holds positions 0, 1, 4, 5, 7 and head 1 positions 0, 2, 3, 5, 7. The last one is the window and the first is
// a sink.
struct Fixture {
  RandomCache cache{1, 2, 1, 4, 8, 1};
  EvictionOptions options = EvictionOptions::parse("random:window=1,sinks=1");

  Fixture() { cache.stored[0] = {{0, 1, 4, 5, 7}, {0, 2, 3, 5, 7}}; }

  void with_ranking(const LayerScores& scores, const std::function<void(LayerRanking&)>& body) {
    cache.with_view(0, {}, [&](const LayerView& view) {
      LayerEvidence evidence(view, options, 0, serial());
      LayerRanking ranking(evidence, scores);
      body(ranking);
    });
  }
};

TEST(Ranking, EqualScoresGoToTheLaterTokenThenToTheLowerHead) {
  Fixture().with_ranking({{9, 1, 1, 1}, {9, 1, 1, 1}}, [](LayerRanking& ranking) {
    EXPECT_EQ(ranking.head(0).order, (std::vector<std::int32_t>{2, 1, 0}));
    // By position: 5 (both heads), 4 (head 0), 3 and 2 (head 1), 1 (head 0).
    EXPECT_EQ(ranking.flat_order(6), (std::vector<std::uint16_t>{0, 1, 0, 1, 1, 0}));
    EXPECT_EQ(ranking.flat_counts(3), (std::vector<std::int64_t>{2, 1}));
  });
}

TEST(Ranking, ZeroAndMinusZeroAreEqual) {
  Fixture().with_ranking({{0, 0.0F, -0.0F, 0.0F}, {0, -2, -1, -1}}, [](LayerRanking& ranking) {
    EXPECT_EQ(ranking.head(0).order, (std::vector<std::int32_t>{2, 1, 0}));
    EXPECT_EQ(ranking.head(1).order, (std::vector<std::int32_t>{2, 1, 0}));
    EXPECT_EQ(ranking.flat_counts(4), (std::vector<std::int64_t>{3, 1}));
  });
}

TEST(Ranking, BrokenScoresAreErrorsThatNameLayerAndHead) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    try {
      Fixture().with_ranking({{0, 1, 1, 1}, {0, 1, bad, 1}}, [](LayerRanking&) {});
      ADD_FAILURE() << bad << " was ranked";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_NE(std::string(error.what()).find("layer 0, KV head 1"), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace winnow
