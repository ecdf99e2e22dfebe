#include "device/block_allocator.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <random>

namespace winnow::device {
namespace {

// Returns an address that is never accessed.
std::byte* address(std::uintptr_t n) { return reinterpret_cast<std::byte*>(n); }

TEST(BlockAllocatorTest, BlocksAreAlignedAndComeFromTheLowestRoom) {
  BlockAllocator blocks(address(1 << 20), 4096);
  std::byte* const first = blocks.allocate(1);
  std::byte* const second = blocks.allocate(257);
  std::byte* const third = blocks.allocate(256);
  EXPECT_EQ(first, address(1 << 20));
  EXPECT_EQ(second, first + 256);
  EXPECT_EQ(third, first + 768);
  EXPECT_EQ(blocks.bytes_in_use(), 1024U);
  blocks.free(second);
  EXPECT_EQ(blocks.allocate(512), second);
}

TEST(BlockAllocatorTest, NeighboursJoinWhenTheyAreFreed) {
  BlockAllocator blocks(address(1 << 20), 1024);
  std::byte* block[4];
  for (std::byte*& b : block) b = blocks.allocate(256);
  EXPECT_EQ(blocks.allocate(1), nullptr);
  for (const int i : {1, 3, 2}) blocks.free(block[i]);
  EXPECT_EQ(blocks.allocate(769), nullptr);
  EXPECT_EQ(blocks.allocate(768), block[1]);
  blocks.free(block[0]);
  blocks.free(block[1]);
  EXPECT_EQ(blocks.bytes_in_use(), 0U);
  EXPECT_EQ(blocks.allocate(1024), block[0]);
}

TEST(BlockAllocatorTest, TheGapBehindABlockBelongsToNone) {
  BlockAllocator blocks(address(1 << 20), 2048, 256);
  EXPECT_EQ(blocks.allocate(256), address(1 << 20));
  EXPECT_EQ(blocks.allocate(256), address((1 << 20) + 512));
  EXPECT_EQ(blocks.allocate(1024), nullptr);
}

TEST(BlockAllocatorTest, WhatIsLargerThanTheRangeFindsNoRoom) {
  BlockAllocator blocks(address(1 << 20), 1024);
  EXPECT_EQ(blocks.allocate(SIZE_MAX), nullptr);
  EXPECT_EQ(blocks.allocate(1025), nullptr);
  EXPECT_EQ(BlockAllocator(address(1 << 20), 0).allocate(0), nullptr);
}

TEST(BlockAllocatorTest, BlocksNeverOverlap) {
  constexpr std::size_t kBytes = 1 << 20;
  BlockAllocator blocks(address(1 << 20), kBytes);
  std::map<std::byte*, std::size_t> used;
  std::mt19937 random(7);
  for (int step = 0; step < 5000; ++step) {
    if (used.empty() || random() % 3 != 0) {
      const std::size_t bytes = 1 + random() % 20000;
      std::byte* const block = blocks.allocate(bytes);
      if (block == nullptr) continue;
      const auto after = used.lower_bound(block);
      ASSERT_TRUE(after == used.end() || block + bytes <= after->first);
      ASSERT_TRUE(after == used.begin() || std::prev(after)->first + std::prev(after)->second <= block);
      ASSERT_TRUE(blocks.holds(block) && block + bytes <= address((1 << 20) + kBytes));
      used.emplace(block, bytes);
    } else {
      const auto chosen = std::next(used.begin(), static_cast<std::ptrdiff_t>(random() % used.size()));
      blocks.free(chosen->first);
      used.erase(chosen);
    }
  }
  for (const auto& [block, bytes] : used) blocks.free(block);
  EXPECT_EQ(blocks.allocate(kBytes), address(1 << 20));
}

}  // namespace
}  // namespace winnow::device
