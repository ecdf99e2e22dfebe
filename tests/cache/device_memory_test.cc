// Caches whose rows lie in memory that the processor cannot read: the memory they take, the rows that move, their
// conversions, and the changes that an executor learns of.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include "cache/cache_test_support.h"
#include "cache/coded_rows.h"
#include "cache/guarded_memory.h"
#include "cache/memory_block.h"
#include "cache/staging_buffer.h"
#include "expect_error.h"
#include "winnow/error.h"

namespace winnow {
namespace {

constexpr std::size_t kDeviceMiB = 1 << 20;

class DeviceMemory : public testing::Test {
 protected:
  const CacheShape shape_ = even_shape(2, 2, 64);
  std::shared_ptr<GuardedMemory> memory_ = std::make_shared<GuardedMemory>();
  std::shared_ptr<PagePool> pool_ = PagePool::create(0, memory_);
};

TEST_F(DeviceMemory, SlabsGrowWithWhatIsThere) {
  constexpr std::size_t kPage = 16'448, kBeside = 64;
  std::vector<PageRef> pages;
  std::size_t n_blocks = 0;
  while (pool_->statistics().bytes_in_use < 256 * kDeviceMiB) {
    pages.push_back(pool_->acquire(kPage, kBeside));
    const PoolStatistics now = pool_->statistics();
    ASSERT_GE(now.bytes_resident, now.bytes_in_use);
    ASSERT_LE(now.bytes_resident, now.bytes_in_use + std::max(2 * kDeviceMiB, now.bytes_in_use / 7));
    ASSERT_EQ(reinterpret_cast<std::uintptr_t>(pages.back().data()) % 64, 0U);
    n_blocks = memory_->n_blocks();
  }
  EXPECT_LT(n_blocks, 50U);
  // A slab is freed only when all of its pages are free.
  pool_->trim();
  EXPECT_EQ(memory_->n_blocks(), n_blocks);
  pages.clear();
  EXPECT_EQ(memory_->n_blocks(), 0U);
  EXPECT_EQ(pool_->statistics().bytes_resident, 0U);
}

TEST_F(DeviceMemory, SlabsStayWithinTheLimit) {
  constexpr std::size_t kPage = 16'448, kBeside = 64, kLimit = 100 * kPage;
  const auto pool = PagePool::create(kLimit, memory_);
  std::vector<PageRef> pages;
  for (int i = 0; i < 100; ++i) pages.push_back(pool->acquire(kPage, kBeside));
  EXPECT_EQ(pool->statistics().bytes_in_use, kLimit);
  EXPECT_LE(pool->statistics().bytes_resident, kLimit + 4096) << "whole pages of the operating system";
  test::expect_error(ErrorCode::kOutOfMemory, "raise the limit", [&] { pool->acquire(kPage, kBeside); });
}

TEST_F(DeviceMemory, TakesASmallerSlabWhereALargeOneIsRefused) {
  constexpr std::size_t kPage = 16'448, kBeside = 64;
  memory_->fail(1, 1);
  const PageRef page = pool_->acquire(kPage, kBeside);
  EXPECT_TRUE(memory_->has_failed());
  EXPECT_LE(pool_->statistics().bytes_resident, kDeviceMiB + 8192);
  EXPECT_EQ(pool_->statistics().pages_in_use, 1U);
}

TEST_F(DeviceMemory, WhatIsBesideAPageIsTheProcessors) {
  const PageRef a = pool_->acquire(128, 64), b = pool_->acquire(128, 64);
  std::memset(pool_->beside(a.id()), 1, 64);
  std::memset(pool_->beside(b.id()), 2, 64);
  EXPECT_EQ(pool_->beside(a.id())[63], std::byte{1});
  EXPECT_EQ(std::abs(b.data() - a.data()), 64);
  EXPECT_EQ(pool_->statistics().bytes_in_use, 256U);
  const auto host = PagePool::create(0);
  EXPECT_EQ(host->beside(host->acquire(128, 64).id()), nullptr);
}

TEST_F(DeviceMemory, TakesTheBytesOfTheHosts) {
  const auto host_pool = PagePool::create(0);
  RaggedCache cache(shape_, pool_), host(shape_, host_pool);
  for (RaggedCache* each : {&cache, &host}) {
    extend_and_write(*each, 0, 0, 100, 0, 1);
    extend_and_write(*each, 1, 1, 7, 0, 1);
    each->keep(0, 0, every(3, 100));
  }
  EXPECT_EQ(cache.bytes(), host.bytes());
  EXPECT_EQ(cache.bytes_in_pages(), host.bytes_in_pages());
  EXPECT_EQ(pool_->statistics().bytes_in_use, host_pool->statistics().bytes_in_use);
  EXPECT_EQ(pool_->statistics().bytes_peak, host_pool->statistics().bytes_peak);
  EXPECT_EQ(bytes_of(cache), bytes_of(host));
}

TEST_F(DeviceMemory, MovesAPlanByOneCall) {
  RaggedCache cache(shape_, pool_);
  extend_and_write(cache, 0, 0, 200, 0, 1);
  for (std::int32_t i = 0; i < 20; ++i) cache.extend(0, 0, 1, 200 + i);
  EXPECT_EQ(memory_->n_copy_calls(), 0) << "steps move nothing";
  cache.keep(0, 0, every(2, 220));
  EXPECT_EQ(memory_->n_copy_calls(), 1);
  RaggedCache fork = cache.fork();
  fork.extend(0, 0, 1, 300);
  EXPECT_EQ(memory_->n_copy_calls(), 2) << "a copy of the last page";
  cache.truncate(30);
  EXPECT_EQ(memory_->n_copy_calls(), 2) << "the end goes";
}

TEST_F(DeviceMemory, GathersFromAStagingBuffer) {
  StagingBuffer staging(shape_, 150, 10, pool_);
  staging.begin_rows(1, 10, 150);
  for (std::int32_t i = 0; i < 150; ++i) {
    const TestEntry entry = make_entry(shape_, 10 + i, 4);
    memory_->write(staging.key_row(1, i), entry.key.data(), entry.key.size());
    memory_->write(staging.value_row(1, i), entry.value.data(), entry.value.size());
  }
  RaggedCache cache(shape_, pool_);
  cache.append_from(1, 1, staging.head(1).entries, every(3, 150));
  cache.append_from(1, 1, staging.head(1).entries, std::vector<std::int32_t>{149});
  std::vector<TestEntry> expected;
  for (const std::int32_t i : every(3, 150)) expected.push_back(make_entry(shape_, 10 + i, 4));
  expected.push_back(make_entry(shape_, 159, 4));
  EXPECT_EQ(read_head(cache, 1, 1), expected);
  EXPECT_EQ(memory_->n_copy_calls(), 2);
}

TEST_F(DeviceMemory, FilesGoFromOneMemoryToTheOther) {
  CacheShape shape = even_shape(3, 2, 16, EntryType::kBF16, EntryType::kBF16);
  shape.layers[1].sliding_window = 50;
  const auto fill = [&](RaggedCache& cache) {
    for (int l = 0; l < 3; ++l) {
      for (int h = 0; h < 2; ++h) {
        extend_and_write(cache, l, h, 60 + 20 * h, 0, static_cast<std::uint32_t>(l));
        const std::int32_t next = shape.layer(l).sliding_window > 0 ? 60 + 20 * h : 100'000;
        extend_and_write(cache, l, h, 60 - 20 * h, next, static_cast<std::uint32_t>(l));
      }
    }
    cache.settle();
  };
  RaggedCache cache(shape, pool_), host(shape, PagePool::create(0));
  fill(cache);
  fill(host);
  const std::string bytes = bytes_of(host);
  ASSERT_EQ(bytes_of(cache), bytes);
  std::istringstream in(bytes);
  RaggedCache restored(shape, pool_);
  restore_layers(restored, in);
  EXPECT_EQ(bytes_of(restored), bytes);
  for (int h = 0; h < 2; ++h) EXPECT_EQ(read_head(restored, 1, h), read_head(host, 1, h));
  // The file ends while a page's rows are read.
  std::istringstream half(bytes.substr(0, bytes.size() - 3));
  test::expect_error(ErrorCode::kBadFile, "too early", [&] { restore_layers(restored, half); });
  EXPECT_EQ(restored.n_entries(), 0);
}

// Rows that are converted pass through the processor, which gives the same bytes as in host memory.
TEST_F(DeviceMemory, ConvertsToTheBytesOfTheHosts) {
  std::vector<CacheShape> shapes;
  for (const auto& [key_type, value_type] :
       {std::pair(EntryType::kR4, EntryType::kR3), std::pair(EntryType::kQ8_0, EntryType::kQ4_0),
        std::pair(EntryType::kF16, EntryType::kR4)}) {
    shapes.push_back(even_shape(2, 2, 64, key_type, value_type));
  }
  CacheShape two_kinds = even_shape(2, 2, 64, EntryType::kR3, EntryType::kR3);
  two_kinds.high = {.key_type = EntryType::kR4, .value_type = EntryType::kR4, .fraction = 0.5};
  two_kinds.later = {.key_type = EntryType::kQ8_0, .value_type = EntryType::kQ8_0};
  shapes.push_back(two_kinds);
  for (std::size_t s = 0; s < shapes.size(); ++s) {
    SCOPED_TRACE("shape " + std::to_string(s));
    const CacheShape& shape = shapes[s];
    const auto host_pool = PagePool::create(0);
    std::vector<RaggedCache> caches;
    caches.emplace_back(shape, pool_);
    caches.emplace_back(shape, host_pool);
    std::vector<RaggedCache> forks;
    std::mt19937 random(7);
    std::int32_t next = 0;
    for (int step = 0; step < 60; ++step) {
      const int head = static_cast<int>(random() % 2);
      const auto operation = random() % 6;
      const auto seed = random();
      const std::int32_t n = operation < 2 ? 1 + static_cast<std::int32_t>(seed % 90) : 0;
      for (RaggedCache& cache : caches) {
        std::mt19937 own(seed);
        if (operation < 2) {
          extend(cache, 0, head, n, next, own);
        } else if (operation == 2) {
          cache.settle();
        } else if (operation == 3) {
          std::vector<std::int32_t> kept, high;
          for (std::int32_t i = 0; i < cache.n_entries(0, head); ++i) {
            if (i < kPlainEntries || own() % 4 > 0) kept.push_back(i);
          }
          if (shape.high && kept.size() > 2 * kPageEntries)
            high.assign(kept.begin() + 7, kept.begin() + 7 + kPageEntries);
          cache.raise_bits(0, head, seed % 5 == 0);
          if (seed % 2 == 0) cache.hold_values();
          cache.keep(0, head, kept, high);
          cache.code_values([](int n_items, const std::function<void(int)>& body) {
            for (int i = 0; i < n_items; ++i) body(i);
          });
        } else if (operation == 4) {
          forks.push_back(cache.fork());
        } else {
          cache.truncate(next - 20);
        }
      }
      next += n;
      ASSERT_EQ(bytes_of(caches[0]), bytes_of(caches[1])) << "operation " << operation << ", step " << step;
      ASSERT_EQ(caches[0].bytes_in_pages(), caches[1].bytes_in_pages());
    }
    for (std::size_t i = 0; i + 1 < forks.size(); i += 2) EXPECT_EQ(bytes_of(forks[i]), bytes_of(forks[i + 1]));
  }
}

TEST_F(DeviceMemory, AllocationsThatFailChangeNothing) {
  const CacheShape shape = even_shape(1, 1, 512, EntryType::kF32, EntryType::kF32);  // 128 KiB a page
  constexpr std::int32_t kEntries = 15 * kPageEntries;                               // a slab
  const CacheShape coded = even_shape(1, 1, 256, EntryType::kR4, EntryType::kR3);
  const auto expect_unchanged = [&](const std::function<void(RaggedCache&)>& change, bool is_coded = false) {
    int n = 1;
    for (;; ++n) {
      const auto memory = std::make_shared<GuardedMemory>();
      RaggedCache cache(is_coded ? coded : shape, PagePool::create(0, memory));
      if (is_coded) {
        std::mt19937 random(1);
        extend(cache, 0, 0, kEntries, 0, random);
      } else {
        extend_and_write(cache, 0, 0, kEntries, 0, 1);
      }
      const RaggedCache fork = cache.fork();
      const std::string before = bytes_of(cache);
      memory->fail(n, 1000);
      bool has_thrown = false;
      try {
        change(cache);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory);
        has_thrown = true;
      }
      if (has_thrown) {
        ASSERT_EQ(bytes_of(cache), before);
      }
      ASSERT_EQ(bytes_of(fork), before);
      if (!memory->has_failed()) break;
    }
    EXPECT_GT(n, 1);
  };
  expect_unchanged([](RaggedCache& cache) { cache.keep(0, 0, every(2, kEntries)); });
  expect_unchanged([](RaggedCache& cache) { cache.extend(0, 0, 700, kEntries); });
  expect_unchanged([](RaggedCache& cache) { cache.keep(0, 0, every(2, kEntries)); }, /*is_coded=*/true);
  const auto pool = PagePool::create(0, memory_);
  memory_->fail(1, 1);
  test::expect_error(ErrorCode::kOutOfMemory, "no", [&] { StagingBuffer(shape_, 100, 0, pool); });
  EXPECT_EQ(pool->statistics().bytes_reserved, 0U);
}

TEST_F(DeviceMemory, StoresValues) {
  RaggedCache cache(even_shape(1, 1, 2, EntryType::kF32, EntryType::kF32), pool_);
  extend_and_write(cache, 0, 0, 40, 0, 1);
  const RaggedCache fork = cache.fork();
  std::vector<float> values(80);
  std::iota(values.begin(), values.end(), 0.0F);
  cache.store_values(0, 0, values.data());
  const std::vector<TestEntry> entries = read_head(cache, 0, 0);
  for (std::size_t i = 0; i < 40; ++i) {
    EXPECT_EQ(std::memcmp(entries[i].value.data(), values.data() + 2 * i, 2 * sizeof(float)), 0);
    EXPECT_EQ(entries[i].key, make_entry(cache.shape(), static_cast<std::int32_t>(i), 1).key);
  }
  EXPECT_EQ(read_head(fork, 0, 0)[35], make_entry(cache.shape(), 35, 1));
}

// take_changes() returns the first page that a mirror of the page table has to renew.
// A page that is coded where it lies, since no memory for a smaller one is left, has other rows at the same place.
TEST(PageChanges, APageCodedInPlaceHasChanged) {
  CacheShape shape = even_shape(1, 1, 64);
  shape.key_type = shape.value_type = EntryType::kQ8_0;
  std::size_t limit = 0;
  {
    const auto pool = PagePool::create(0);
    RaggedCache cache(shape, pool);
    cache.extend_all(200, 0);
    limit = pool->statistics().bytes_in_use;
  }
  for (const std::size_t bytes : {std::size_t{0}, limit}) {
    RaggedCache cache(shape, PagePool::create(bytes));
    cache.extend_all(200, 0);
    for (std::int32_t i = 0; i < 200; ++i) {
      std::fill_n(cache.key_row(0, 0, i), 128, std::byte{0x30});
      std::fill_n(cache.value_row(0, 0, i), 128, std::byte{0x30});
    }
    std::vector<PageRows> mirror(cache.n_pages(0, 0));
    const auto update = [&] {
      const std::size_t n_pages = cache.n_pages(0, 0);
      for (std::size_t page = cache.take_changes(0, 0); page < n_pages; ++page) {
        mirror[page] = cache.page_rows(0, 0, page);
      }
    };
    update();
    std::vector<std::int32_t> all(200);
    std::iota(all.begin(), all.end(), 0);
    cache.keep(0, 0, all);
    update();
    for (std::size_t page = 0; page < cache.n_pages(0, 0); ++page) {
      EXPECT_TRUE(mirror[page] == cache.page_rows(0, 0, page)) << "page " << page << ", limit " << bytes;
    }
  }
}

TEST_F(DeviceMemory, TellsWhichPagesChanged) {
  CacheShape shape = even_shape(2, 1, 16);
  shape.layers[1].sliding_window = 40;
  RaggedCache cache(shape, pool_);
  const auto takes = [](RaggedCache& of, std::size_t full, std::size_t window) {
    EXPECT_EQ(std::min(of.take_changes(0, 0), of.n_pages(0, 0)), full);
    EXPECT_EQ(std::min(of.take_changes(1, 0), of.n_pages(1, 0)), window);
  };
  cache.extend_all(70, 0);
  takes(cache, 0, 0);
  takes(cache, 3, 3);
  cache.extend_all(1, 70);
  takes(cache, 3, 3);
  cache.settle();  // positions 31 to 70: no page is freed
  takes(cache, 3, 3);
  EXPECT_EQ(cache.first_slot(1, 0), 31);
  cache.extend_all(26, 71);
  cache.settle();
  EXPECT_EQ(cache.n_pages(1, 0), 3U);
  EXPECT_EQ(cache.first_slot(1, 0), 57 - 32);
  takes(cache, 3, 0);
  RaggedCache fork = cache.fork();
  takes(fork, 0, 0);
  takes(cache, 4, 3);
  fork.extend_all(1, 97);  // copies the last page
  takes(fork, 3, 2);
  takes(cache, 4, 3);
  cache.keep(0, 0, every(2, 97));
  takes(cache, 0, 3);  // the fork holds the old pages
  cache.keep(0, 0, every(2, 49));
  takes(cache, 1, 3);
  RaggedCache moved = std::move(fork);
  takes(moved, 0, 0);
  cache = std::move(moved);
  takes(cache, 0, 0);
  cache.clear();
  takes(cache, 0, 0);
  cache.extend_all(3, 0);
  takes(cache, 0, 0);
}

TEST(HostMemory, CopiesAsIfAllWereReadFirst) {
  const MemoryBlock block(HostMemory::shared(), 64);
  std::byte* data = block.data();
  for (int i = 0; i < 64; ++i) data[i] = static_cast<std::byte>(i);
  const ByteCopy swapped[] = {{data, data + 8, 8}, {data + 8, data, 8}};
  HostMemory::shared()->copy(swapped);
  EXPECT_EQ(data[0], std::byte{8});
  EXPECT_EQ(data[8], std::byte{0});
  const ByteCopy shifted[] = {{data + 17, data + 16, 16}};
  HostMemory::shared()->copy(shifted);
  EXPECT_EQ(data[32], std::byte{31});
}

}  // namespace
}  // namespace winnow
