#include "cache/entry_scores.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <sstream>
#include <string>

#include "cache/cache_test_support.h"
#include "winnow/error.h"

namespace winnow {
namespace {

// Returns a shape of two layers that are cut and, between them, one with a sliding window.
CacheShape mixed_shape() {
  CacheShape shape = even_shape(3, 2, 16);
  shape.layers[1].sliding_window = 64;
  return shape;
}

std::vector<float> some_scores(int n, float first) {
  std::vector<float> scores;
  for (int i = 0; i < n; ++i) scores.push_back(first / static_cast<float>(i + 1));
  return scores;
}

TEST(EntryScores, AreGivenBackRoundedToBf16) {
  EntryScores scores(mixed_shape(), PagePool::create(0));
  EXPECT_EQ(scores.layer(0), std::vector<std::vector<float>>(2));
  EXPECT_TRUE(scores.layer(1).empty());  // no method cuts a sliding window
  const std::vector<float> given = some_scores(70, 3e-5F);
  scores.set(0, 1, scores.make(given));
  EXPECT_TRUE(scores.layer(0)[0].empty());
  const std::vector<float> found = scores.layer(0)[1];
  ASSERT_EQ(found.size(), given.size());
  for (std::size_t i = 0; i < given.size(); ++i) EXPECT_NEAR(found[i], given[i], given[i] / 256) << i;
  EXPECT_TRUE(scores.layer(2)[1].empty());
}

TEST(EntryScores, CountTowardsThePoolAndItsLimit) {
  const auto pool = PagePool::create(4096);
  EntryScores scores(mixed_shape(), pool);
  scores.set(2, 0, scores.make(some_scores(1000, 1)));
  EXPECT_EQ(scores.bytes(), 2000U);
  EXPECT_EQ(pool->statistics().bytes_reserved, 2000U);
  const EntryScores copy = scores;
  EXPECT_EQ(pool->statistics().bytes_reserved, 2000U);  // shared
  const auto before = scores.layer(2);
  try {
    scores.set(2, 0, scores.make(some_scores(1100, 2)));
    FAIL() << "no Error was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory);
  }
  EXPECT_EQ(scores.layer(2), before);
  scores.set(2, 0, scores.make(some_scores(500, 2)));
  EXPECT_EQ(pool->statistics().bytes_reserved, 3000U);
  EXPECT_EQ(copy.layer(2), before);
  scores.clear();
  EXPECT_EQ(scores.bytes(), 0U);
  EXPECT_EQ(pool->statistics().bytes_reserved, 2000U);
}

TEST(EntryScores, AreWrittenAndReadBitForBit) {
  const auto pool = PagePool::create(0);
  RaggedCache cache(mixed_shape(), pool);
  cache.extend_all(50, 0);
  EntryScores scores(mixed_shape(), pool);
  scores.set(0, 0, scores.make(some_scores(50, 2)));
  scores.set(2, 1, scores.make(some_scores(17, 1e-20F)));
  std::stringstream file;
  for (const int layer : {0, 1, 2}) scores.write(file, layer);
  EntryScores read(mixed_shape(), pool);
  for (const int layer : {0, 1, 2}) read.read(file, layer, cache);
  EXPECT_EQ(file.peek(), std::stringstream::traits_type::eof());
  for (const int layer : {0, 1, 2}) EXPECT_EQ(read.layer(layer), scores.layer(layer));
}

TEST(EntryScores, RefuseWhatNoWriteLeft) {
  const auto pool = PagePool::create(0);
  RaggedCache cache(mixed_shape(), pool);
  cache.extend_all(50, 0);
  const auto refuses = [&](const std::string& bytes) {
    std::stringstream file(bytes);
    EntryScores scores(mixed_shape(), pool);
    try {
      scores.read(file, 0, cache);
      return false;
    } catch (const Error& error) {
      return error.code() == ErrorCode::kBadFile;
    }
  };
  const auto written = [&](std::span<const float> of_head) {
    EntryScores scores(mixed_shape(), pool);
    scores.set(0, 0, scores.make(of_head));
    std::stringstream file;
    scores.write(file, 0);
    return file.str();
  };
  const std::string good = written(some_scores(50, 1));
  EXPECT_FALSE(refuses(good));
  for (const std::size_t n : {std::size_t{0}, std::size_t{3}, std::size_t{40}, good.size() - 1}) {
    EXPECT_TRUE(refuses(good.substr(0, n))) << n;
  }
  EXPECT_TRUE(refuses(written(some_scores(51, 1))));  // more scores than entries
  std::string negative = good;
  negative[3] = '\xff';
  EXPECT_TRUE(refuses(negative));
  std::vector<float> broken = some_scores(50, 1);
  broken[20] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(refuses(written(broken)));
}

}  // namespace
}  // namespace winnow
