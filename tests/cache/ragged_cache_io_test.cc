#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <sstream>
#include <string>

#include "cache/cache_test_support.h"
#include "winnow/error.h"

namespace winnow {
namespace {

const CacheShape kShape = even_shape(2, 2, 4, EntryType::kF16, EntryType::kF32);
constexpr std::size_t kShapeBytes = 5 * sizeof(std::int32_t);  // before the heads of each layer
const std::size_t kEntryBytes = kShape.key_bytes(0) + kShape.value_bytes(0) + sizeof(std::int32_t);  // in a file

RaggedCache small_cache(const std::shared_ptr<PagePool>& pool) {
  RaggedCache cache(kShape, pool);
  extend_and_write(cache, 0, 0, 3, 10, 1);
  extend_and_write(cache, 1, 0, 34, 0, 2);
  extend_and_write(cache, 1, 1, 1, 99, 3);
  return cache;
}

std::string with_int(std::string bytes, std::size_t offset, std::int32_t value) {
  std::memcpy(bytes.data() + offset, &value, sizeof(value));
  return bytes;
}

// Restores the bytes into a cache that has entries, expects a refusal that leaves the cache empty, and returns the
// message.
std::string refusal(const std::string& bytes) {
  const auto pool = PagePool::create(1 << 20);
  RaggedCache cache(kShape, pool);
  extend_and_write(cache, 0, 1, 5, 0, 9);
  pool->reset_peak();
  std::istringstream in(bytes);
  try {
    restore_layers(cache, in);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kBadFile) << error.what();
    EXPECT_EQ(cache.n_entries(), 0);
    EXPECT_EQ(pool->statistics().pages_in_use, 0U);
    EXPECT_LE(pool->statistics().bytes_peak, 8 * kShape.page_bytes(0));
    return error.what();
  }
  ADD_FAILURE() << "a corrupt stream of " << bytes.size() << " bytes was accepted";
  return "";
}

TEST(RaggedCacheIo, RestoresWhatWasWritten) {
  const auto pool = PagePool::create(0);
  const RaggedCache cache = small_cache(pool);
  const std::string bytes = bytes_of(cache);
  EXPECT_EQ(bytes.size(), 2 * kShapeBytes + (4 + 2 * 4) * sizeof(std::int32_t) + 38 * kEntryBytes)
      << "a count for each of four heads, two numbers for each of four pages";

  RaggedCache restored(kShape, pool);
  extend_and_write(restored, 0, 1, 50, 0, 9);  // is replaced
  std::istringstream in(bytes + "what follows");
  restore_layers(restored, in);
  for (int layer = 0; layer < 2; ++layer) {
    for (int kv_head = 0; kv_head < 2; ++kv_head) {
      EXPECT_EQ(read_head(restored, layer, kv_head), read_head(cache, layer, kv_head));
    }
  }
  EXPECT_EQ(restored.bytes_in_pages(), cache.bytes_in_pages());
  EXPECT_EQ(bytes_of(restored), bytes);
  std::string rest;
  std::getline(in, rest);
  EXPECT_EQ(rest, "what follows") << "restore reads its own bytes only";
}

TEST(RaggedCacheIo, RefusesAStreamCutAtAnyByte) {
  const std::string bytes = bytes_of(small_cache(PagePool::create(0)));
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    EXPECT_NE(refusal(bytes.substr(0, n)).find("too early"), std::string::npos) << "cut at " << n;
  }
}

TEST(RaggedCacheIo, RefusesAbsurdCountsWithoutTakingMemory) {
  const std::string bytes = bytes_of(small_cache(PagePool::create(0)));
  constexpr std::int32_t kLowest = std::numeric_limits<std::int32_t>::min();
  constexpr std::int32_t kHighest = std::numeric_limits<std::int32_t>::max();
  const std::int64_t peak_before = peak_resident_bytes();
  // The four heads have 3, 0, 34 and 1 entries.
  std::size_t offset = kShapeBytes;
  for (int head = 0; const std::size_t n : {3UL, 0UL, 34UL, 1UL}) {
    if (head++ == 2) offset += kShapeBytes;  // the second layer's shape
    std::int32_t count = 0;
    std::memcpy(&count, bytes.data() + offset, sizeof(count));
    ASSERT_EQ(static_cast<std::size_t>(count), n);
    for (const std::int32_t absurd : {-1, kLowest, kHighest, 1'000'000, count + 1}) {
      EXPECT_FALSE(refusal(with_int(bytes, offset, absurd)).empty()) << "count " << absurd << " for " << count;
    }
    const std::size_t n_pages = (n + kPageEntries - 1) / kPageEntries;
    offset += sizeof(count) + n_pages * 2 * sizeof(std::int32_t) + n * kEntryBytes;
  }
  if (kMeasuresResidentSize) {
    EXPECT_LT(peak_resident_bytes() - peak_before, 64 << 20);
  }
}

TEST(RaggedCacheIo, RefusesPositionsWithoutRows) {
  std::string bytes = bytes_of(RaggedCache(kShape, PagePool::create(0))).substr(0, kShapeBytes);
  std::vector<std::int32_t> head = {1 << 30, kPageEntries, 0};
  for (std::int32_t i = 0; i < kPageEntries; ++i) head.push_back(i);
  bytes.append(static_cast<const char*>(static_cast<const void*>(head.data())), head.size() * sizeof(std::int32_t));
  EXPECT_NE(refusal(bytes).find("too early"), std::string::npos);
}

TEST(RaggedCacheIo, RefusesPositionsOutOfOrder) {
  const std::string bytes = bytes_of(small_cache(PagePool::create(0)));
  const std::size_t positions = kShapeBytes + 3 * sizeof(std::int32_t);  // 10, 11, 12
  EXPECT_NE(refusal(with_int(bytes, positions, -1)).find("order"), std::string::npos);
  EXPECT_NE(refusal(with_int(bytes, positions, 11)).find("order"), std::string::npos);
  EXPECT_NE(refusal(with_int(bytes, positions + 4, std::numeric_limits<std::int32_t>::max())).find("order"),
            std::string::npos);
}

TEST(RaggedCacheIo, RefusesPagesThatCannotBe) {
  const std::string bytes = bytes_of(small_cache(PagePool::create(0)));
  const std::size_t n_entries = kShapeBytes + sizeof(std::int32_t), is_plain = n_entries + sizeof(std::int32_t);
  for (const std::int32_t n : {0, -1, 2, 4, kPageEntries + 1, std::numeric_limits<std::int32_t>::min()}) {
    EXPECT_FALSE(refusal(with_int(bytes, n_entries, n)).empty()) << n;
  }
  for (const std::int32_t flag : {1, 2, -1}) {  // no entry is coded here, so none is marked as plain
    EXPECT_NE(refusal(with_int(bytes, is_plain, flag)).find("impossible page"), std::string::npos) << flag;
  }
}

TEST(RaggedCacheIo, RefusesAnotherShapeAndNamesBoth) {
  const std::string bytes = bytes_of(small_cache(PagePool::create(0)));
  for (std::size_t field = 0; field < 5; ++field) {
    for (const std::int32_t value : {-1, 77, std::numeric_limits<std::int32_t>::max()}) {
      const std::string message = refusal(with_int(bytes, field * sizeof(std::int32_t), value));
      EXPECT_NE(message.find(std::to_string(value)), std::string::npos) << message;
      EXPECT_NE(message.find("2 KV heads of 4, keys f16, values f32"), std::string::npos) << message;
    }
  }
}

TEST(RaggedCacheIo, IsEmptyAfterRunningOutOfMemory) {
  const CacheShape shape = even_shape(1, 1, 64);
  RaggedCache cache(shape, PagePool::create(0));
  extend_and_write(cache, 0, 0, 200, 0, 1);
  const auto pool = PagePool::create(3 * shape.page_bytes(0));
  RaggedCache restored(shape, pool);
  std::istringstream in(bytes_of(cache));
  try {
    restore_layers(restored, in);
    FAIL() << "no Error was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory);
  }
  EXPECT_EQ(restored.n_entries(), 0);
  EXPECT_EQ(pool->statistics().pages_in_use, 0U);
}

TEST(RaggedCacheIo, ReportsAFailingStream) {
  const RaggedCache cache = small_cache(PagePool::create(0));
  std::ostringstream out;
  out.setstate(std::ios::badbit);
  try {
    cache.write(out, 0);
    FAIL() << "no Error was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kIo);
  }
}

}  // namespace
}  // namespace winnow
