#include "cache/ragged_cache.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <numeric>
#include <thread>

#include "cache/cache_test_support.h"
#include "sanitizers.h"
#include "winnow/error.h"

namespace winnow {
namespace {

using Positions = std::vector<std::int32_t>;

const CacheShape kShape = even_shape(2, 3, 16);

// Returns the number of pages that n entries take.
std::size_t n_pages(std::int32_t n) { return static_cast<std::size_t>((n + kPageEntries - 1) / kPageEntries); }

std::vector<TestEntry> expected_entries(const Positions& positions, std::uint32_t seed) {
  std::vector<TestEntry> result;
  for (const std::int32_t position : positions) result.push_back(make_entry(kShape, position, seed));
  return result;
}

class RaggedCacheTest : public testing::Test {
 protected:
  std::size_t pages_in_use() const { return pool_->statistics().pages_in_use; }

  std::shared_ptr<PagePool> pool_ = PagePool::create(0);
  RaggedCache cache_{kShape, pool_};
};

TEST(CacheShape, CountsBytes) {
  const CacheShape shape = even_shape(30, 3, 64);
  EXPECT_EQ(shape.entry_bytes(0), 128U + 128U + 2U);
  EXPECT_EQ(shape.page_bytes(0), 8256U);
  EXPECT_EQ(shape.cut_entry_bytes(65'535).head_extra, 0);
  EXPECT_EQ(shape.cut_entry_bytes(200'000).head_extra, 3 * 32 * 4) << "pages that may span more than 16 bits";
}

TEST_F(RaggedCacheTest, StartsEmpty) {
  EXPECT_EQ(cache_.n_entries(), 0);
  EXPECT_EQ(cache_.bytes_in_pages(), 0U);
  EXPECT_EQ(cache_.entries(1, 2).n_entries, 0);
  EXPECT_TRUE(cache_.entries(1, 2).runs.empty());
}

TEST_F(RaggedCacheTest, HeadsHaveTheirOwnLengths) {
  const std::int32_t lengths[2][3] = {{0, 1, 31}, {32, 33, 100}};
  std::size_t pages = 0;
  for (int layer = 0; layer < 2; ++layer) {
    for (int kv_head = 0; kv_head < 3; ++kv_head) {
      const std::int32_t n = lengths[layer][kv_head];
      extend_and_write(cache_, layer, kv_head, n, 7, static_cast<std::uint32_t>(10 * layer + kv_head));
      pages += n_pages(n);
      EXPECT_EQ(pages_in_use(), pages);
      EXPECT_EQ(cache_.bytes_in_pages(), pages * kShape.page_bytes(0));
      EXPECT_EQ(pool_->statistics().bytes_in_use, cache_.bytes_in_pages());
    }
  }
  EXPECT_EQ(cache_.n_entries(), 0 + 1 + 31 + 32 + 33 + 100);
  for (int layer = 0; layer < 2; ++layer) {
    for (int kv_head = 0; kv_head < 3; ++kv_head) {
      const std::int32_t n = lengths[layer][kv_head];
      EXPECT_EQ(cache_.n_entries(layer, kv_head), n);
      EXPECT_EQ(read_head(cache_, layer, kv_head),
                expected_entries(range(7, 7 + n), static_cast<std::uint32_t>(10 * layer + kv_head)));
      for (const auto& run : cache_.entries(layer, kv_head).runs) EXPECT_GT(run.n_entries, 0);
    }
  }
}

TEST_F(RaggedCacheTest, ExtendByNothingDoesNothing) {
  cache_.extend(0, 0, 0, 0);
  EXPECT_EQ(pages_in_use(), 0U);
  extend_and_write(cache_, 0, 0, 40, 0, 1);
  const RaggedCache fork = cache_.fork();
  const auto* runs = cache_.entries(0, 0).runs.data();
  cache_.extend(0, 0, 0, 40);
  EXPECT_EQ(cache_.entries(0, 0).runs.data(), runs);
  EXPECT_EQ(pages_in_use(), 2U);
}

TEST_F(RaggedCacheTest, KeepCompactsInPlaceAndReturnsPages) {
  extend_and_write(cache_, 0, 0, 200, 0, 1);
  extend_and_write(cache_, 0, 1, 50, 0, 2);
  const std::byte* first_page = cache_.entries(0, 0).runs[0].keys;
  Positions kept;
  for (std::int32_t i = 3; i < 200; i += 3) kept.push_back(i);
  pool_->reset_peak();
  const std::size_t peak = pool_->statistics().bytes_peak;

  cache_.keep(0, 0, kept);
  EXPECT_EQ(read_head(cache_, 0, 0), expected_entries(kept, 1));
  EXPECT_EQ(read_head(cache_, 0, 1), expected_entries(range(0, 50), 2));
  EXPECT_EQ(pages_in_use(), n_pages(static_cast<std::int32_t>(kept.size())) + 2);
  EXPECT_EQ(cache_.entries(0, 0).runs[0].keys, first_page);
  EXPECT_EQ(pool_->statistics().bytes_peak, peak) << "compacting one's own pages takes no others";

  extend_and_write(cache_, 0, 0, 5, 200, 1);
  Positions longer = kept;
  for (std::int32_t i = 200; i < 205; ++i) longer.push_back(i);
  EXPECT_EQ(read_head(cache_, 0, 0), expected_entries(longer, 1));

  cache_.keep(0, 0, {});
  EXPECT_EQ(cache_.n_entries(0, 0), 0);
  EXPECT_EQ(pages_in_use(), 2U);
}

TEST_F(RaggedCacheTest, KeepOfSharedPagesLeavesTheForkAlone) {
  extend_and_write(cache_, 0, 0, 128, 0, 1);
  RaggedCache fork = cache_.fork();
  Positions kept = range(0, 40);  // a whole page stays shared, the second changes
  for (std::int32_t i = 50; i < 100; ++i) kept.push_back(i);
  cache_.keep(0, 0, kept);
  EXPECT_EQ(read_head(cache_, 0, 0), expected_entries(kept, 1));
  EXPECT_EQ(read_head(fork, 0, 0), expected_entries(range(0, 128), 1));
  EXPECT_EQ(cache_.entries(0, 0).runs[0].keys, fork.entries(0, 0).runs[0].keys);
  EXPECT_EQ(pages_in_use(), 4U + 2U);

  // In the other direction, the fork's changes must not affect the parent's remaining pages.
  fork.keep(0, 0, Positions{5, 6, 7});
  EXPECT_EQ(read_head(fork, 0, 0), expected_entries({5, 6, 7}, 1));
  EXPECT_EQ(read_head(cache_, 0, 0), expected_entries(kept, 1));
  EXPECT_EQ(pages_in_use(), 3U + 1U);
}

TEST_F(RaggedCacheTest, KeepingAPrefixCopiesNothing) {
  extend_and_write(cache_, 0, 0, 100, 0, 1);
  RaggedCache fork = cache_.fork();
  cache_.keep(0, 0, range(0, 40));
  EXPECT_EQ(pages_in_use(), 4U);
  // But the shared, now partial page must be copied before the head grows again.
  extend_and_write(cache_, 0, 0, 3, 300, 9);
  EXPECT_EQ(read_head(fork, 0, 0), expected_entries(range(0, 100), 1));
  EXPECT_EQ(pages_in_use(), 5U);
}

TEST_F(RaggedCacheTest, ForkCostsNoPageUntilAWrite) {
  extend_and_write(cache_, 0, 0, 40, 0, 1);
  RaggedCache fork = cache_.fork();
  EXPECT_EQ(pages_in_use(), 2U);
  EXPECT_EQ(fork.bytes_in_pages(), cache_.bytes_in_pages());
  EXPECT_EQ(read_head(fork, 0, 0), read_head(cache_, 0, 0));

  extend_and_write(fork, 0, 0, 1, 40, 2);
  EXPECT_EQ(pages_in_use(), 3U) << "only the partial page is copied";
  extend_and_write(cache_, 0, 0, 2, 40, 3);
  EXPECT_EQ(pages_in_use(), 3U) << "the page is no longer shared";

  auto expected = expected_entries(range(0, 40), 1);
  expected.push_back(make_entry(kShape, 40, 2));
  EXPECT_EQ(read_head(fork, 0, 0), expected);
  expected.back() = make_entry(kShape, 40, 3);
  expected.push_back(make_entry(kShape, 41, 3));
  EXPECT_EQ(read_head(cache_, 0, 0), expected);
}

TEST_F(RaggedCacheTest, RewritingARowCopiesASharedPageInBothDirections) {
  extend_and_write(cache_, 0, 0, 64, 0, 1);
  RaggedCache fork = cache_.fork();
  write_entry(cache_, 0, 0, 5, make_entry(kShape, 5, 77));
  write_entry(fork, 0, 0, 40, make_entry(kShape, 40, 88));

  auto expected = expected_entries(range(0, 64), 1);
  expected[5] = make_entry(kShape, 5, 77);
  EXPECT_EQ(read_head(cache_, 0, 0), expected);
  expected[5] = make_entry(kShape, 5, 1);
  expected[40] = make_entry(kShape, 40, 88);
  EXPECT_EQ(read_head(fork, 0, 0), expected);
}

TEST_F(RaggedCacheTest, RewritingAValueAloneCopiesASharedPage) {
  extend_and_write(cache_, 0, 0, 64, 0, 1);
  const RaggedCache fork = cache_.fork();
  std::memset(cache_.value_row(0, 0, 33), 0, kShape.value_bytes(0));
  EXPECT_EQ(read_head(fork, 0, 0), expected_entries(range(0, 64), 1));
  EXPECT_NE(read_head(cache_, 0, 0), read_head(fork, 0, 0));
  EXPECT_EQ(pages_in_use(), 3U);
}

TEST_F(RaggedCacheTest, ForkOutlivesItsParent) {
  auto parent = std::make_unique<RaggedCache>(kShape, pool_);
  extend_and_write(*parent, 1, 1, 70, 0, 4);
  RaggedCache fork = parent->fork();
  parent.reset();
  EXPECT_EQ(read_head(fork, 1, 1), expected_entries(range(0, 70), 4));
  extend_and_write(fork, 1, 1, 1, 70, 4);
  EXPECT_EQ(pages_in_use(), 3U) << "sole owner: nothing to copy";
}

TEST_F(RaggedCacheTest, ForksMayLiveOnDifferentThreads) {
  for (int kv_head = 0; kv_head < 3; ++kv_head) extend_and_write(cache_, 0, kv_head, 50, 0, 1);
  std::vector<RaggedCache> forks;
  for (int i = 0; i < 4; ++i) forks.push_back(cache_.fork());
  std::atomic<int> n_wrong{0};
  std::vector<std::thread> threads;
  for (std::uint32_t i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 50; ++round) {
        RaggedCache mine = forks[i].fork();
        const int kv_head = round % 3;
        extend_and_write(mine, 0, kv_head, 60, 50, i + 10);
        mine.keep(0, kv_head, range(10, 90));
        auto expected = expected_entries(range(10, 50), 1);
        const auto own = expected_entries(range(50, 90), i + 10);
        expected.insert(expected.end(), own.begin(), own.end());
        if (read_head(mine, 0, kv_head) != expected) ++n_wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(n_wrong, 0);
  EXPECT_EQ(read_head(cache_, 0, 1), expected_entries(range(0, 50), 1));
}

TEST_F(RaggedCacheTest, ThreadsMayWriteDifferentRows) {
  cache_.extend(0, 0, 256, 0);
  std::vector<std::thread> threads;
  for (std::int32_t t = 0; t < 4; ++t) {
    threads.emplace_back([this, t] {
      for (std::int32_t i = t; i < 256; i += 4) write_entry(cache_, 0, 0, i, make_entry(kShape, i, 3));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(read_head(cache_, 0, 0), expected_entries(range(0, 256), 3));
}

TEST_F(RaggedCacheTest, TruncateDropsPositionsNotIndices) {
  extend_and_write(cache_, 0, 0, 100, 0, 1);
  extend_and_write(cache_, 0, 1, 20, 90, 2);
  extend_and_write(cache_, 1, 0, 5, 200, 3);
  cache_.keep(0, 0, Positions{0, 50, 94, 95, 96});
  RaggedCache fork = cache_.fork();
  cache_.truncate(95);
  EXPECT_EQ(positions_of(read_head(cache_, 0, 0)), (Positions{0, 50, 94}));
  EXPECT_EQ(positions_of(read_head(cache_, 0, 1)), range(90, 95));
  EXPECT_EQ(cache_.n_entries(1, 0), 0);
  EXPECT_EQ(positions_of(read_head(fork, 0, 0)), (Positions{0, 50, 94, 95, 96}));

  extend_and_write(cache_, 0, 0, 2, 95, 9);
  EXPECT_EQ(read_head(fork, 0, 0), expected_entries({0, 50, 94, 95, 96}, 1));
  cache_.truncate(0);
  EXPECT_EQ(cache_.n_entries(), 0);
  EXPECT_EQ(cache_.bytes_in_pages(), 0U);
}

TEST_F(RaggedCacheTest, TruncateAtPageBorders) {
  for (const std::int32_t position : {31, 32, 33, 63, 64, 65, 96, 97, 1000}) {
    RaggedCache cache(kShape, pool_);
    extend_and_write(cache, 0, 0, 96, 0, 1);
    cache.truncate(position);
    EXPECT_EQ(read_head(cache, 0, 0), expected_entries(range(0, std::min(position, 96)), 1));
    EXPECT_EQ(pages_in_use(), n_pages(std::min(position, 96)));
  }
}

TEST_F(RaggedCacheTest, AppendFromCopiesAcrossRuns) {
  RaggedCache source(kShape, pool_);
  extend_and_write(source, 0, 0, 150, 100, 5);
  extend_and_write(cache_, 1, 2, 30, 0, 6);
  cache_.append_from(1, 2, source.entries(0, 0), {});
  EXPECT_EQ(cache_.n_entries(1, 2), 30);
  cache_.append_from(1, 2, source.entries(0, 0), Positions{0, 31, 32, 95, 96, 149});
  auto expected = expected_entries(range(0, 30), 6);
  for (const std::int32_t position : {100, 131, 132, 195, 196, 249}) {
    expected.push_back(make_entry(kShape, position, 5));
  }
  EXPECT_EQ(read_head(cache_, 1, 2), expected);
  EXPECT_EQ(read_head(source, 0, 0), expected_entries(range(100, 250), 5));
}

// 40 entries at every 10,000th position lie further apart on a page than its 16-bit offsets reach.
TEST_F(RaggedCacheTest, PositionsMayLieFarApart) {
  constexpr std::int32_t kGap = 10'000;
  Positions positions;
  for (std::int32_t i = 0; i < 40; ++i) {
    positions.push_back(i * kGap);
    extend_and_write(cache_, 0, 0, 1, positions.back(), 7);
  }
  EXPECT_EQ(read_head(cache_, 0, 0), expected_entries(positions, 7));
  EXPECT_EQ(cache_.bytes(), 40 * kShape.entry_bytes(0) + 2 * kFarPositionsBytes);
  EXPECT_LE(static_cast<double>(2 * kFarPositionsBytes), kShape.cut_entry_bytes(40 * kGap).head_extra);

  // A fork and its parent go on with their own positions.
  RaggedCache fork = cache_.fork();
  extend_and_write(cache_, 0, 0, 1, 400'000, 7);
  extend_and_write(fork, 0, 0, 1, 500'000, 7);
  EXPECT_EQ(positions_of(read_head(cache_, 0, 0)).back(), 400'000);
  EXPECT_EQ(positions_of(read_head(fork, 0, 0)).back(), 500'000);

  // For neighbouring entries alone, offsets suffice again.
  fork.keep(0, 0, range(3, 8));
  EXPECT_EQ(positions_of(read_head(fork, 0, 0)), (Positions{30'000, 40'000, 50'000, 60'000, 70'000}));
  EXPECT_EQ(fork.bytes(), 5 * kShape.entry_bytes(0));
  fork.truncate(50'000);
  EXPECT_EQ(positions_of(read_head(fork, 0, 0)), (Positions{30'000, 40'000}));
  positions.push_back(400'000);
  EXPECT_EQ(read_head(cache_, 0, 0), expected_entries(positions, 7));
}

TEST_F(RaggedCacheTest, ClearReturnsEverything) {
  extend_and_write(cache_, 0, 0, 1000, 0, 1);
  cache_.clear();
  EXPECT_EQ(cache_.n_entries(), 0);
  EXPECT_EQ(pages_in_use(), 0U);
  EXPECT_EQ(pool_->statistics().bytes_resident, 0U);
  extend_and_write(cache_, 0, 0, 3, 0, 2);
  EXPECT_EQ(read_head(cache_, 0, 0), expected_entries(range(0, 3), 2));
}

// Every operation that takes pages fails against a pool that has none left.
TEST(RaggedCacheLimit, FailedOperationsChangeNothing) {
  const auto pool = PagePool::create(4 * kShape.page_bytes(0));
  RaggedCache cache(kShape, pool);
  extend_and_write(cache, 0, 0, 40, 0, 1);
  RaggedCache fork = cache.fork();
  extend_and_write(cache, 0, 1, 40, 0, 2);  // the pool is full now
  const auto is_out_of_memory = [](auto&& operation) {
    try {
      operation();
    } catch (const Error& error) {
      return error.code() == ErrorCode::kOutOfMemory;
    }
    return false;
  };
  EXPECT_TRUE(is_out_of_memory([&] { cache.extend(0, 0, 1, 40); })) << "the copy of the shared page";
  EXPECT_TRUE(is_out_of_memory([&] { cache.extend(0, 1, 25, 40); })) << "one page more";
  EXPECT_TRUE(is_out_of_memory([&] { cache.extend(1, 1, 320, 0); }));
  EXPECT_TRUE(is_out_of_memory([&] { cache.append_from(1, 0, fork.entries(0, 0), Positions{1, 2}); }));
  EXPECT_TRUE(is_out_of_memory([&] { cache.keep(0, 0, Positions{1, 2}); }));
  EXPECT_TRUE(is_out_of_memory([&] { cache.key_row(0, 0, 1); }));

  EXPECT_EQ(read_head(cache, 0, 0), expected_entries(range(0, 40), 1));
  EXPECT_EQ(read_head(cache, 0, 1), expected_entries(range(0, 40), 2));
  EXPECT_EQ(read_head(fork, 0, 0), expected_entries(range(0, 40), 1));
  EXPECT_EQ(cache.n_entries(), 80);
  EXPECT_EQ(pool->statistics().pages_in_use, 4U);

  extend_and_write(cache, 0, 1, 24, 40, 2);  // the rest of its own page
  EXPECT_EQ(read_head(cache, 0, 1), expected_entries(range(0, 64), 2));

  // One page is left and two are needed: the first one must be returned.
  cache.keep(0, 1, range(0, 20));
  EXPECT_TRUE(is_out_of_memory([&] { cache.extend(0, 1, 50, 64); }));
  EXPECT_TRUE(is_out_of_memory([&] { cache.extend(0, 0, 30, 40); })) << "a page, and the copy of the shared one";
  EXPECT_EQ(pool->statistics().pages_in_use, 3U);
  EXPECT_EQ(cache.entries(0, 1).runs.size(), 1U);
  EXPECT_EQ(read_head(cache, 0, 1), expected_entries(range(0, 20), 2));
  EXPECT_EQ(read_head(cache, 0, 0), expected_entries(range(0, 40), 1));
}

// The process's resident size follows a prompt's entries, an eviction to a tenth of them, and the end of the session.
TEST(RaggedCacheMemory, EvictionLowersTheResidentSize) {
  if (!kMeasuresResidentSize) GTEST_SKIP() << "the resident size says nothing under ThreadSanitizer";
  // Under sanitizers freed memory stays for a while: the rows that keep() moved, 9.2 MiB.
  constexpr std::int64_t kQuarantine = test::kHasSanitizers ? 12 * kMiB : 0;
  const CacheShape shape = even_shape(30, 3, 64);
  const auto pool = PagePool::create(0);
  const std::int64_t before = resident_bytes();
  RaggedCache cache(shape, pool);
  for (int layer = 0; layer < 30; ++layer) {
    for (int kv_head = 0; kv_head < 3; ++kv_head) {
      cache.extend(layer, kv_head, 4096, 0);
      for (std::int32_t i = 0; i < 4096; ++i) {
        std::memset(cache.key_row(layer, kv_head, i), 1, 128);
        std::memset(cache.value_row(layer, kv_head, i), 1, 128);
      }
    }
  }
  EXPECT_GT(resident_bytes() - before, 80 * kMiB);  // 90.7 MiB

  Positions kept;
  for (std::int32_t i = 0; i < 4096; i += 10) kept.push_back(i);
  for (int layer = 0; layer < 30; ++layer) {
    for (int kv_head = 0; kv_head < 3; ++kv_head) cache.keep(layer, kv_head, kept);
  }
  EXPECT_EQ(cache.bytes_in_pages(), 90U * 13U * 8256U);
  EXPECT_EQ(pool->statistics().bytes_in_use, cache.bytes_in_pages());
  pool->trim();
  EXPECT_LT(resident_bytes() - before, 16 * kMiB + kQuarantine);  // 9.3 MiB and the bookkeeping

  cache.clear();
  EXPECT_EQ(pool->statistics().bytes_resident, 0U);
  EXPECT_LT(resident_bytes() - before, 6 * kMiB + kQuarantine);
}

}  // namespace
}  // namespace winnow
