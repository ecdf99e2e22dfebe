#include "cache/page_pool.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "cache/cache_test_support.h"
#include "cache/mapped_memory.h"
#include "winnow/error.h"

namespace winnow {
namespace {

constexpr std::size_t kPage = 8256;  // 32 entries of head size 64 in f16

// Runs f, which must throw an Error, and returns it.
template <typename F>
Error error_of(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no Error was thrown";
  return Error(ErrorCode::kInternal, "");
}

TEST(PageRef, CountsItsHolders) {
  const auto pool = PagePool::create(0);
  PageRef empty;
  EXPECT_FALSE(empty);
  EXPECT_EQ(empty.data(), nullptr);
  EXPECT_FALSE(empty.is_shared());

  PageRef a = pool->acquire(kPage);
  ASSERT_TRUE(a);
  EXPECT_FALSE(a.is_shared());
  PageRef b = a;
  EXPECT_TRUE(a.is_shared());
  EXPECT_TRUE(b.is_shared());
  EXPECT_EQ(a.data(), b.data());
  EXPECT_EQ(pool->statistics().pages_in_use, 1U);

  PageRef c = std::move(a);
  EXPECT_EQ(c.data(), b.data());
  b = PageRef();
  EXPECT_FALSE(c.is_shared());
  EXPECT_EQ(pool->statistics().pages_in_use, 1U);
  c = PageRef();
  EXPECT_EQ(pool->statistics().pages_in_use, 0U);
}

TEST(PageRef, SurvivesSelfAssignment) {
  const auto pool = PagePool::create(0);
  PageRef page = pool->acquire(kPage);
  const PageRef& alias = page;
  page = alias;
  EXPECT_TRUE(page);
  EXPECT_FALSE(page.is_shared());
}

TEST(PageRef, KeepsThePoolAlive) {
  std::weak_ptr<PagePool> watch;
  PageRef page;
  {
    const auto pool = PagePool::create(0);
    watch = pool;
    page = pool->acquire(kPage);
  }
  EXPECT_FALSE(watch.expired());
  std::memset(page.data(), 1, kPage);
  page = PageRef();
  EXPECT_TRUE(watch.expired());
}

TEST(PagePool, KnowsPagesByTheirIds) {
  const auto pool = PagePool::create(0);
  EXPECT_EQ(PageRef().id(), kNoPage);
  std::vector<PageRef> pages;
  std::set<PageId> ids;
  for (int i = 0; i < 1000; ++i) {
    pages.push_back(pool->acquire(i % 2 == 0 ? kPage : 128));
    EXPECT_TRUE(ids.insert(pages.back().id()).second) << "two pages with one id";
  }
  for (const PageRef& page : pages) {
    ASSERT_EQ(pool->data(page.id()), page.data());
    ASSERT_FALSE(pool->is_shared(page.id()));
  }

  // Every holder of an id counts as one reference.
  PageRef& first = pages.front();
  std::byte* data = first.data();
  pool->retain(first.id());
  EXPECT_TRUE(first.is_shared());
  const PageId id = first.detach();
  EXPECT_FALSE(first);
  pool->release(id);
  EXPECT_EQ(pool->data(id), data);
  EXPECT_FALSE(pool->is_shared(id));
  pool->release(id);
  EXPECT_EQ(pool->statistics().pages_in_use, 999U);

  // Ids of freed pages are given out again, so that ids stay as small as the number of pages.
  pages.clear();
  for (int i = 0; i < 1000; ++i) {
    pages.push_back(pool->acquire(kPage));
    EXPECT_TRUE(ids.contains(pages.back().id()));
  }
}

TEST(PagePool, KeepsItselfAliveThroughReservations) {
  std::weak_ptr<PagePool> watch;
  auto pool = PagePool::create(0);
  watch = pool;
  std::shared_ptr<void> reservation = pool->reserve(100);
  EXPECT_NE(reservation, nullptr);
  pool.reset();
  EXPECT_FALSE(watch.expired());
  reservation.reset();
  EXPECT_TRUE(watch.expired());
}

TEST(PagePool, HandsOutAlignedPagesThatDoNotOverlap) {
  const auto pool = PagePool::create(0);
  std::vector<PageRef> pages;
  std::vector<std::size_t> sizes;
  for (const std::size_t size : {64UL, 100UL, kPage, 65664UL, 2'000'000UL}) {
    for (int i = 0; i < 20; ++i) {
      pages.push_back(pool->acquire(size));
      sizes.push_back(size);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(pages.back().data()) % 64, 0U);
      std::memset(pages.back().data(), static_cast<int>(pages.size()), size);
    }
  }
  for (std::size_t i = 0; i < pages.size(); ++i) {
    for (const std::size_t at : {std::size_t{0}, sizes[i] / 2, sizes[i] - 1}) {
      EXPECT_EQ(std::to_integer<std::size_t>(pages[i].data()[at]), (i + 1) % 256) << "page " << i << " byte " << at;
    }
  }
}

TEST(PagePool, CountsEveryOperationExactly) {
  const auto pool = PagePool::create(1 << 20);
  const auto expect = [&](std::size_t n_pages, std::size_t bytes, std::size_t reserved, std::size_t peak, int line) {
    const PoolStatistics s = pool->statistics();
    EXPECT_EQ(s.bytes_limit, 1U << 20) << "line " << line;
    EXPECT_EQ(s.pages_in_use, n_pages) << "line " << line;
    EXPECT_EQ(s.bytes_in_use, bytes) << "line " << line;
    EXPECT_EQ(s.bytes_reserved, reserved) << "line " << line;
    EXPECT_EQ(s.bytes_peak, peak) << "line " << line;
    EXPECT_GE(s.bytes_resident, s.bytes_in_use) << "line " << line;
  };
  expect(0, 0, 0, 0, __LINE__);
  PageRef a = pool->acquire(kPage);
  expect(1, kPage, 0, kPage, __LINE__);
  PageRef b = pool->acquire(100);  // takes 128
  expect(2, kPage + 128, 0, kPage + 128, __LINE__);
  PageRef shared = a;
  expect(2, kPage + 128, 0, kPage + 128, __LINE__);
  auto reservation = pool->reserve(50'000);
  expect(2, kPage + 128, 50'000, kPage + 50'128, __LINE__);
  b = PageRef();
  expect(1, kPage, 50'000, kPage + 50'128, __LINE__);
  reservation.reset();
  expect(1, kPage, 0, kPage + 50'128, __LINE__);
  pool->reset_peak();
  expect(1, kPage, 0, kPage, __LINE__);
  a = PageRef();
  expect(1, kPage, 0, kPage, __LINE__);
  shared = PageRef();
  expect(0, 0, 0, kPage, __LINE__);
  EXPECT_EQ(pool->statistics().bytes_resident, 0U);
}

TEST(PagePool, ReusesFreedPagesBeforeItGrows) {
  const auto pool = PagePool::create(0);
  std::vector<PageRef> pages;
  for (int i = 0; i < 300; ++i) pages.push_back(pool->acquire(kPage));
  const std::size_t resident = pool->statistics().bytes_resident;

  std::set<std::byte*> freed;
  for (std::size_t i = 0; i < 300; i += 3) {
    freed.insert(pages[i].data());
    pages[i] = PageRef();
  }
  for (std::size_t i = 0; i < 300; i += 3) {
    pages[i] = pool->acquire(kPage);
    EXPECT_EQ(freed.erase(pages[i].data()), 1U) << "page " << i << " is not one that was free";
  }
  EXPECT_EQ(pool->statistics().bytes_resident, resident);
}

TEST(PagePool, FillsOldSlabsFirstSoThatYoungOnesEmpty) {
  const auto pool = PagePool::create(0);
  std::vector<PageRef> pages;
  for (int i = 0; i < 600; ++i) pages.push_back(pool->acquire(kPage));
  const std::size_t resident_at_peak = pool->statistics().bytes_resident;

  // Half of the pages, spread over all slabs, are freed; then random pages of the other half are replaced.
  for (std::size_t i = 0; i < 600; i += 2) pages[i] = PageRef();
  std::erase_if(pages, [](const PageRef& page) { return !page; });
  std::mt19937 random(1);
  for (int i = 0; i < 3000; ++i) {
    const std::size_t victim = random() % pages.size();
    pages[victim] = PageRef();
    pages[victim] = pool->acquire(kPage);
    const std::size_t other = random() % pages.size();
    PageRef fresh = pool->acquire(kPage);
    pages[other] = std::move(fresh);
  }
  EXPECT_LT(pool->statistics().bytes_resident, resident_at_peak * 7 / 10);
}

TEST(PagePool, EnforcesTheLimitAndNamesIt) {
  const auto pool = PagePool::create(3 * kPage);
  PageRef a = pool->acquire(kPage);
  PageRef b = pool->acquire(kPage);
  PageRef c = pool->acquire(kPage);  // exactly at the limit
  const Error error = error_of([&] { pool->acquire(kPage); });
  EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory);
  EXPECT_NE(std::string(error.what()).find("24768"), std::string::npos) << error.what();
  EXPECT_NE(std::string(error.what()).find("raise the limit"), std::string::npos) << error.what();
  EXPECT_EQ(pool->statistics().pages_in_use, 3U);
  EXPECT_EQ(pool->statistics().bytes_peak, 3 * kPage);

  c = PageRef();
  EXPECT_NO_THROW(c = pool->acquire(kPage));
}

TEST(PagePool, CountsReservationsTowardsTheLimit) {
  const auto pool = PagePool::create(100'000);
  auto reservation = pool->reserve(95'000);
  EXPECT_EQ(error_of([&] { pool->acquire(kPage); }).code(), ErrorCode::kOutOfMemory);
  EXPECT_EQ(error_of([&] { pool->reserve(5'001); }).code(), ErrorCode::kOutOfMemory);
  EXPECT_EQ(error_of([&] { pool->reserve(SIZE_MAX); }).code(), ErrorCode::kOutOfMemory);
  EXPECT_EQ(pool->statistics().bytes_reserved, 95'000U);
  auto rest = pool->reserve(5'000);
  EXPECT_EQ(pool->statistics().bytes_peak, 100'000U);
  reservation.reset();
  EXPECT_NO_THROW(pool->acquire(kPage));
}

TEST(PagePool, RefusesALimitThatHoldsNothing) {
  EXPECT_EQ(error_of([] { PagePool::create(1); }).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(error_of([] { PagePool::create(4095); }).code(), ErrorCode::kInvalidArgument);
  EXPECT_NO_THROW(PagePool::create(4096));
}

TEST(PagePool, MakesRoomByTrimmingForOtherSizes) {
  constexpr std::size_t kLimit = 8 << 20;
  const auto pool = PagePool::create(kLimit);
  std::vector<PageRef> pages;
  while (pool->statistics().bytes_in_use + kPage <= kLimit) pages.push_back(pool->acquire(kPage));
  // One page in 16 stays, so no slab becomes empty and most of the memory is free but resident.
  for (std::size_t i = 0; i < pages.size(); ++i) {
    if (i % 16 != 0) pages[i] = PageRef();
  }
  EXPECT_GT(pool->statistics().bytes_resident, kLimit * 9 / 10);
  const auto reservation = pool->reserve(kLimit / 2);
  EXPECT_LE(pool->statistics().bytes_resident + pool->statistics().bytes_reserved, kLimit);
}

TEST(PagePool, ReallyGivesMemoryBack) {
  if (!kMeasuresResidentSize) GTEST_SKIP() << "the resident size says nothing under ThreadSanitizer";
  const auto pool = PagePool::create(0);
  const std::int64_t before = resident_bytes();
  std::vector<PageRef> pages;
  pages.reserve(64 * kMiB / kPage);
  for (std::int64_t i = 0; i < 64 * kMiB / static_cast<std::int64_t>(kPage); ++i) {
    pages.push_back(pool->acquire(kPage));
    std::memset(pages.back().data(), 1, kPage);
  }
  const std::int64_t full = resident_bytes();
  EXPECT_NEAR(static_cast<double>(full - before), 64.0 * kMiB, 8.0 * kMiB);
  EXPECT_NEAR(static_cast<double>(pool->statistics().bytes_resident), 64.0 * kMiB, 1.0 * kMiB);

  // Every slab keeps some pages, so no memory is freed until trim(), which frees nearly all unused pages. They must be
  // usable again.
  std::vector<std::byte> expected(kPage, std::byte{1});
  for (std::size_t i = 0; i < pages.size(); ++i) {
    if (i % 8 != 0) pages[i] = PageRef();
  }
  EXPECT_GT(resident_bytes() - before, 56 * kMiB);
  pool->trim();
  EXPECT_LT(resident_bytes() - before, 18 * kMiB);
  EXPECT_LT(pool->statistics().bytes_resident, static_cast<std::size_t>(16 * kMiB));
  EXPECT_GE(pool->statistics().bytes_resident, pool->statistics().bytes_in_use);
  for (std::size_t i = 0; i < pages.size(); i += 8) {
    ASSERT_EQ(std::memcmp(pages[i].data(), expected.data(), kPage), 0) << "trim damaged page " << i;
  }
  const std::size_t trimmed = pool->statistics().bytes_resident;
  PageRef again = pool->acquire(kPage);
  std::memset(again.data(), 2, kPage);
  EXPECT_GT(pool->statistics().bytes_resident, trimmed);
  again = PageRef();

  pages.clear();
  pool->trim();
  EXPECT_EQ(pool->statistics().bytes_resident, 0U);
  EXPECT_LT(resident_bytes() - before, 4 * kMiB);
}

// Threads acquire, share, check and release at random, all under one limit; a page must never have two owners.
TEST(PagePool, SurvivesManyThreads) {
  constexpr int kThreads = 4;
  constexpr std::size_t kLimit = 4 << 20;
  const auto pool = PagePool::create(kLimit);
  std::mutex mailbox_mutex;
  std::vector<std::pair<PageRef, std::byte>> mailbox;  // pages that change threads

  const auto work = [&](unsigned seed) {
    std::mt19937 random(seed);
    std::vector<std::pair<PageRef, std::byte>> mine;
    for (int step = 0; step < 20'000; ++step) {
      const unsigned action = random() % 8;
      if (action < 4) {
        try {
          const std::size_t bytes = random() % 2 == 0 ? kPage : 4480;
          const auto mark = static_cast<std::byte>(random());
          PageRef page = pool->acquire(bytes);
          std::memset(page.data(), std::to_integer<int>(mark), 4480);
          mine.emplace_back(std::move(page), mark);
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory);
          mine.clear();
        }
      } else if (action < 6 && !mine.empty()) {
        const std::size_t i = random() % mine.size();
        EXPECT_EQ(mine[i].first.data()[random() % 4480], mine[i].second);
        std::swap(mine[i], mine.back());
        mine.pop_back();
      } else if (action == 6 && !mine.empty()) {
        const std::lock_guard lock(mailbox_mutex);
        mailbox.push_back(mine[random() % mine.size()]);
        if (mailbox.size() > 50) mailbox.clear();
      } else if (action == 7) {
        const std::lock_guard lock(mailbox_mutex);
        if (!mailbox.empty()) {
          mine.push_back(std::move(mailbox.back()));
          mailbox.pop_back();
        }
      }
      if (step % 500 == 0) pool->trim();
      if (step % 100 == 0) {
        const PoolStatistics s = pool->statistics();
        EXPECT_LE(s.bytes_in_use, kLimit);
        EXPECT_LE(s.bytes_in_use, s.bytes_resident);
      }
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < kThreads; ++i) threads.emplace_back(work, i);
  for (std::thread& thread : threads) thread.join();
  mailbox.clear();

  EXPECT_EQ(pool->statistics().pages_in_use, 0U);
  EXPECT_EQ(pool->statistics().bytes_in_use, 0U);
  EXPECT_EQ(pool->statistics().bytes_resident, 0U);
  EXPECT_LE(pool->statistics().bytes_peak, kLimit);
}

}  // namespace
}  // namespace winnow
