#include "cache/staging_buffer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "cache/cache_test_support.h"
#include "cache/guarded_memory.h"
#include "winnow/error.h"

namespace winnow {
namespace {

TEST(StagingBuffer, HoldsEveryRowAtItsPlace) {
  const CacheShape shape = even_shape(2, 3, 10, EntryType::kF16, EntryType::kF32);
  StagingBuffer buffer(shape, 37, 1000, PagePool::create(0));
  for (int kv_head = 0; kv_head < 3; ++kv_head) {
    for (std::int32_t token = 0; token < 37; ++token) {
      const TestEntry entry = make_entry(shape, 1000 + token, static_cast<std::uint32_t>(kv_head));
      std::memcpy(buffer.key_row(kv_head, token), entry.key.data(), entry.key.size());
      std::memcpy(buffer.value_row(kv_head, token), entry.value.data(), entry.value.size());
    }
  }
  for (int kv_head = 0; kv_head < 3; ++kv_head) {
    for (const std::int32_t n : {0, 1, 37}) {
      const kernels::EntryRun run = buffer.run(kv_head, n);
      const auto found = read_entries(shape, {.runs = {&run, 1}, .n_entries = n});
      ASSERT_EQ(found.size(), static_cast<std::size_t>(n));
      for (std::int32_t i = 0; i < n; ++i) {
        EXPECT_EQ(found[static_cast<std::size_t>(i)], make_entry(shape, 1000 + i, static_cast<std::uint32_t>(kv_head)));
      }
    }
  }
}

TEST(StagingBuffer, CountsTowardsThePoolAndItsLimit) {
  const CacheShape shape = even_shape(30, 3, 64);
  const auto pool = PagePool::create(1 << 20);
  const std::size_t rows = 3 * 512 * (128 + 128);
  {
    const StagingBuffer buffer(shape, 512, 0, pool);
    EXPECT_GE(buffer.bytes(), rows);
    EXPECT_LE(buffer.bytes(), rows + 512 * 3 * sizeof(std::int32_t));  // no more than a layer's entries
    EXPECT_EQ(pool->statistics().bytes_reserved, buffer.bytes());
    EXPECT_EQ(pool->statistics().bytes_peak, buffer.bytes());
  }
  EXPECT_EQ(pool->statistics().bytes_reserved, 0U);
  try {
    const StagingBuffer too_large(shape, 100'000, 0, pool);
    FAIL() << "no Error was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory);
  }
  EXPECT_EQ(pool->statistics().bytes_reserved, 0U);
}

TEST(StagingBuffer, EndsTheReservationWhenTheSystemRefuses) {
  const CacheShape shape = even_shape(1, 1 << 20, 1 << 10, EntryType::kF32, EntryType::kF32);
  const auto pool = PagePool::create(0);
  try {
    const StagingBuffer too_large(shape, 1 << 20, 0, pool);  // 2^53 bytes: more than an address space
    FAIL() << "no Error was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory);
  }
  EXPECT_EQ(pool->statistics().bytes_reserved, 0U);
}

TEST(StagingBuffer, ReturnsItsMemoryToTheSystem) {
  if (!kMeasuresResidentSize) GTEST_SKIP() << "the resident size says nothing under ThreadSanitizer";
  const CacheShape shape = even_shape(1, 8, 128);
  const std::int64_t before = resident_bytes();
  {
    StagingBuffer buffer(shape, 8192, 0, PagePool::create(0));
    std::memset(buffer.key_row(0, 0), 1, 8UL * 8192 * 256);
    std::memset(buffer.value_row(0, 0), 1, 8UL * 8192 * 256);
    EXPECT_GT(resident_bytes() - before, 28 << 20);
  }
  EXPECT_LT(resident_bytes() - before, 4 << 20);
}

// Layers that rows go through together have separate memory, which each returns when it is done.
TEST(StagingBuffer, KeepsLayersThatAreTakenTogetherApart) {
  constexpr std::int32_t kTokens = 10;
  constexpr int kLayers = 5, kTogether = 2;
  const CacheShape shape = even_shape(kLayers, 2, 16);
  const auto pool = PagePool::create(0);
  StagingBuffer buffer(shape, kTokens, 0, pool, kTogether);
  EXPECT_EQ(buffer.bytes(), StagingBuffer::bytes_for(shape, kTokens, kTogether));
  EXPECT_EQ(pool->statistics().bytes_reserved, buffer.bytes());
  const std::size_t of_layer = StagingBuffer::bytes_for(shape, kTokens, 2) - StagingBuffer::bytes_for(shape, kTokens);
  const auto each_row = [&](int layer, auto&& visit) {
    buffer.begin_rows(layer, 0, kTokens);
    for (int h = 0; h < 2; ++h) {
      for (std::int32_t i = 0; i < kTokens; ++i) {
        visit(std::span(buffer.key_row(h, i), shape.key_bytes(layer)));
        visit(std::span(buffer.value_row(h, i), shape.value_bytes(layer)));
      }
    }
  };
  for (int first = 0; first < kLayers; first += kTogether) {
    const int last = std::min(first + kTogether, kLayers);
    for (int l = first; l < last; ++l) {
      each_row(l, [&](std::span<std::byte> row) { std::fill(row.begin(), row.end(), static_cast<std::byte>(l + 1)); });
    }
    for (int l = first; l < last; ++l) {
      each_row(l, [&](std::span<std::byte> row) {
        for (const std::byte b : row) ASSERT_EQ(std::to_integer<int>(b), l + 1);
      });
      buffer.end_layer(l);
    }
    const std::size_t n_left = std::min(kTogether, kLayers - last);
    EXPECT_EQ(pool->statistics().bytes_reserved, buffer.bytes() - (kTogether - n_left) * of_layer) << first;
  }
}

// Rows behind the prompt see copies of the entries that they are shown, and each other; the prompt stays as it was.
TEST(StagingBuffer, ShowsRowsBehindThePromptWhatItIsAskedTo) {
  constexpr std::int32_t kPrompt = 90, kFirst = 500;
  const CacheShape shape = even_shape(2, 2, 10, EntryType::kF16, EntryType::kF32);
  const auto write_rows = [&](StagingBuffer& buffer, int layer, std::int32_t position, std::int32_t n) {
    buffer.begin_rows(layer, position, n);
    for (int h = 0; h < 2; ++h) {
      for (std::int32_t r = 0; r < n; ++r) {
        const TestEntry entry = make_entry(shape, position + r, static_cast<std::uint32_t>(10 * layer + h));
        std::memcpy(buffer.key_row(h, buffer.head(h).n_before + r), entry.key.data(), entry.key.size());
        std::memcpy(buffer.value_row(h, buffer.head(h).n_before + r), entry.value.data(), entry.value.size());
      }
    }
  };
  const auto expect_positions = [&](const StagingBuffer& buffer, int layer, int h,
                                    const std::vector<std::int32_t>& positions) {
    const auto found = read_entries(shape, buffer.head(h).entries);
    ASSERT_EQ(found.size(), positions.size());
    const HeadRows rows = buffer.head_rows(h);
    ASSERT_EQ(rows.n_entries, std::ssize(positions));
    for (std::size_t i = 0; i < positions.size(); ++i) {
      TestEntry expected = make_entry(shape, positions[i], static_cast<std::uint32_t>(10 * layer + h));
      EXPECT_EQ(found[i].key, expected.key) << "head " << h << ", entry " << i;
      EXPECT_EQ(found[i].value, expected.value) << "head " << h << ", entry " << i;
      const std::byte* const key = rows.pages[i / kPageEntries].keys + i % kPageEntries * expected.key.size();
      EXPECT_EQ(std::memcmp(key, expected.key.data(), expected.key.size()), 0) << "head " << h << ", entry " << i;
    }
  };
  const auto with = [](std::vector<std::int32_t> positions, std::int32_t first, std::int32_t end) {
    for (std::int32_t p = first; p < end; ++p) positions.push_back(p);
    return positions;
  };
  StagingBuffer buffer(shape, 150, kFirst, PagePool::create(0), 2);
  for (int layer = 0; layer < 2; ++layer) write_rows(buffer, layer, kFirst, kPrompt);

  const std::vector<std::vector<std::int32_t>> some = {{0, 3, 4, 5, 89}, {7}}, others = {{1}, with({}, 2, 42)};
  buffer.begin_layer(0);
  buffer.show_only(kPrompt, some);
  write_rows(buffer, 0, kFirst + kPrompt, 3);
  write_rows(buffer, 0, kFirst + kPrompt + 3, 2);
  EXPECT_EQ(buffer.head(0).n_before, 8);
  EXPECT_EQ(buffer.head(1).n_before, 4);
  const std::int32_t end = kFirst + kPrompt;
  expect_positions(buffer, 0, 0, with({500, 503, 504, 505, 589}, end, end + 5));
  expect_positions(buffer, 0, 1, with({507}, end, end + 5));
  buffer.show_only(kPrompt, others);
  write_rows(buffer, 0, end, 4);
  expect_positions(buffer, 0, 0, with({501}, end, end + 4));
  expect_positions(buffer, 0, 1, with(with({}, 502, 542), end, end + 4));

  buffer.show_only(kPrompt, std::vector<std::vector<std::int32_t>>{{1, 70, 60, 61}, {2, 3}});  // the first are there
  write_rows(buffer, 0, end, 4);
  expect_positions(buffer, 0, 0, with({501, 570, 560, 561}, end, end + 4));
  expect_positions(buffer, 0, 1, with({502, 503}, end, end + 4));

  write_rows(buffer, 1, end, 3);  // of a layer where everything is shown
  expect_positions(buffer, 1, 0, with({}, kFirst, end + 3));
  for (int layer = 0; layer < 2; ++layer) {
    buffer.begin_rows(layer, kFirst, kPrompt);
    for (int h = 0; h < 2; ++h) expect_positions(buffer, layer, h, with({}, kFirst, end));
  }
}

// A device copies for all heads at once, and what its copies begin with stays.
TEST(StagingBuffer, CopiesWhatIsNotThere) {
  constexpr std::int32_t kPrompt = 90;
  const CacheShape shape = even_shape(2, 2, 10, EntryType::kF16, EntryType::kF32);
  const auto memory = std::make_shared<GuardedMemory>();
  StagingBuffer buffer(shape, 150, 0, PagePool::create(0, memory), 2);
  const auto expect_copied = [&](int layer, const std::vector<std::vector<std::int32_t>>& entries, std::size_t n) {
    const int n_calls = memory->n_copy_calls();
    const std::size_t bytes = memory->bytes_copied();
    buffer.begin_layer(layer);
    buffer.show_only(kPrompt, entries);
    buffer.begin_rows(layer, kPrompt, 4);
    EXPECT_EQ(memory->n_copy_calls(), n_calls + 1);
    EXPECT_EQ(memory->bytes_copied() - bytes, n * (shape.key_bytes(layer) + shape.value_bytes(layer)));
  };
  expect_copied(0, {{3, 9, 5}, {7}}, 4);
  expect_copied(0, {{3, 9, 6, 5}, {7, 8}}, 3);
  expect_copied(0, {{3}, {7}}, 0);
  expect_copied(0, {{3, 9}, {8}}, 2);
  expect_copied(1, {{3, 9}, {8}}, 3);
  buffer.begin_rows(1, 0, kPrompt);
  expect_copied(1, {{3, 9}, {8}}, 3);
}

// The rows of layers that others attend to have memory of their own, which no other layer's rows touch.
TEST(StagingBuffer, KeepsSharedLayersApart) {
  CacheShape shape{.layers = {{.n_kv_head = 2, .key_dim = 16, .value_dim = 16, .is_shared = true},
                              {.n_kv_head = 1, .key_dim = 32, .value_dim = 16},
                              {.n_kv_head = 1, .key_dim = 16, .value_dim = 48, .is_shared = true},
                              {}},
                   .key_type = EntryType::kF32,
                   .value_type = EntryType::kF32};
  constexpr std::int32_t kTokens = 10;
  StagingBuffer buffer(shape, kTokens, 0, PagePool::create(0));
  const auto each_row = [&](int layer, auto&& visit) {
    buffer.begin_rows(layer, 0, kTokens);
    for (int h = 0; h < shape.layer(layer).n_kv_head; ++h) {
      for (std::int32_t i = 0; i < kTokens; ++i) {
        visit(std::span(buffer.key_row(h, i), shape.key_bytes(layer)));
        visit(std::span(buffer.value_row(h, i), shape.value_bytes(layer)));
      }
    }
  };
  for (int l = 0; l < 3; ++l) {
    each_row(l, [&](std::span<std::byte> row) { std::fill(row.begin(), row.end(), static_cast<std::byte>(l + 1)); });
  }
  for (const int l : {0, 1, 2}) {
    each_row(l, [&](std::span<std::byte> row) {
      for (const std::byte b : row) ASSERT_EQ(std::to_integer<int>(b), l + 1);
    });
  }
  EXPECT_EQ(buffer.bytes(), StagingBuffer::bytes_for(shape, kTokens));
  std::size_t in_rows = 0;
  for (int l = 0; l < 3; ++l) {
    in_rows +=
        kTokens * static_cast<std::size_t>(shape.layer(l).n_kv_head) * (shape.key_bytes(l) + shape.value_bytes(l));
  }
  EXPECT_GE(buffer.bytes(), in_rows);
}

}  // namespace
}  // namespace winnow
