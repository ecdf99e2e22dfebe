// Layers that differ: sliding windows that free entries outside them, layers of different sizes, and layers without
// entries.
#include <gtest/gtest.h>

#include <numeric>
#include <sstream>

#include "cache/cache_test_support.h"
#include "cache/guarded_memory.h"
#include "cache/staging_buffer.h"
#include "expect_error.h"
#include "winnow/error.h"

namespace winnow {
namespace {

constexpr std::int32_t kWindow = 50;

// Returns a shape with full attention, a sliding window, no entries and a sliding window; all entries have one size.
CacheShape sliding_shape() {
  const LayerShape full{.n_kv_head = 2, .key_dim = 8, .value_dim = 8};
  LayerShape sliding = full;
  sliding.sliding_window = kWindow;
  return {.layers = {full, sliding, LayerShape{}, sliding}};
}

void extend_layers(RaggedCache& cache, std::int32_t n, std::int32_t first_position) {
  for (int l = 0; l < cache.shape().n_layer(); ++l) {
    for (int h = 0; h < cache.shape().layer(l).n_kv_head; ++h) extend_and_write(cache, l, h, n, first_position, 1);
  }
}

std::vector<TestEntry> expected_entries(const CacheShape& shape, std::int32_t first, std::int32_t end) {
  std::vector<TestEntry> entries;
  for (const std::int32_t position : range(first, end)) entries.push_back(make_entry(shape, position, 1));
  return entries;
}

class SlidingLayers : public testing::TestWithParam<TestMemory> {};

TEST_P(SlidingLayers, KeepTheirWindowWhateverTheSteps) {
  for (const std::int32_t step : {1, 7, 31, 32, 33, 90}) {
    const auto pool = PagePool::create(0, make_memory(GetParam()));
    RaggedCache cache(sliding_shape(), pool);
    for (std::int32_t n = 0; n < 400; n += step) {
      extend_layers(cache, step, n);
      cache.settle();
      const std::int32_t end = n + step;
      for (const int l : {1, 3}) {
        const auto expected = expected_entries(cache.shape(), std::max(0, end - kWindow), end);
        ASSERT_EQ(read_head(cache, l, 1), expected) << "step " << step << " tokens " << end;
        // A kernel finds the same keys through the addresses of pages.
        const HeadRows rows = cache.head_rows(l, 1);
        ASSERT_EQ(rows.n_entries, std::ssize(expected));
        for (std::int32_t e = 0; e < rows.n_entries; ++e) {
          const std::int32_t slot = rows.first_slot + e;
          const PageRows& page = rows.pages[static_cast<std::size_t>(slot / kPageEntries)];
          std::vector<std::byte> key(cache.shape().key_bytes(l));
          cache.memory().read(key.data(), page.keys + static_cast<std::size_t>(slot % kPageEntries) * key.size(),
                              key.size());
          ASSERT_EQ(key, expected[static_cast<std::size_t>(e)].key);
        }
        // The entries lie on the fewest pages that hold these positions.
        ASSERT_EQ(cache.entries(l, 1).runs.size(),
                  static_cast<std::size_t>((end - 1) / kPageEntries - expected.front().position / kPageEntries + 1));
      }
      ASSERT_EQ(cache.n_entries(0, 0), end);
      ASSERT_EQ(cache.n_cut_entries(), 2 * end);
      ASSERT_EQ(cache.n_entries(), 2 * end + 4 * std::min(end, kWindow));
      ASSERT_EQ(cache.shape().full_entries(end), cache.n_entries());
      ASSERT_EQ(cache.shape().full_bytes(end), cache.bytes());
      ASSERT_EQ(pool->statistics().bytes_in_use, cache.bytes_in_pages());
    }
  }
}

TEST_P(SlidingLayers, RunsDependOnPositionsAlone) {
  const auto pool = PagePool::create(0, make_memory(GetParam()));
  RaggedCache steps(sliding_shape(), pool), whole(sliding_shape(), pool), copied(sliding_shape(), pool);
  for (std::int32_t n = 0; n < 133; ++n) {
    extend_layers(steps, 1, n);
    steps.settle();
  }
  extend_layers(whole, 133, 0);
  const kernels::HeadEntries source = whole.entries(1, 0);
  copied.append_from(1, 0, source, range(133 - kWindow, 133));
  whole.settle();
  const auto run_sizes = [](const RaggedCache& cache) {
    std::vector<std::int32_t> sizes;
    for (const kernels::EntryRun& run : cache.entries(1, 0).runs) sizes.push_back(run.n_entries);
    return sizes;
  };
  EXPECT_EQ(run_sizes(steps), run_sizes(whole));
  EXPECT_EQ(run_sizes(steps), run_sizes(copied));
  std::stringstream file;
  write_layers(steps, file);
  RaggedCache restored(sliding_shape(), pool);
  restore_layers(restored, file);
  EXPECT_EQ(run_sizes(restored), run_sizes(steps));
  for (const int l : {0, 1, 3}) EXPECT_EQ(read_head(restored, l, 1), read_head(steps, l, 1));
}

TEST_P(SlidingLayers, ForksSlideApart) {
  const auto pool = PagePool::create(0, make_memory(GetParam()));
  RaggedCache cache(sliding_shape(), pool);
  extend_layers(cache, 60, 0);
  cache.settle();
  RaggedCache fork = cache.fork();
  extend_layers(fork, 40, 60);
  fork.settle();
  EXPECT_EQ(read_head(cache, 1, 0), expected_entries(cache.shape(), 10, 60));
  EXPECT_EQ(read_head(fork, 1, 0), expected_entries(cache.shape(), 50, 100));
  extend_layers(cache, 3, 60);
  cache.truncate(60);
  EXPECT_EQ(read_head(cache, 1, 0), expected_entries(cache.shape(), 10, 60));
  cache.clear();
  EXPECT_EQ(read_head(fork, 3, 1), expected_entries(cache.shape(), 50, 100));
}

TEST(SlidingLayersOfSizes, LayersHaveTheirOwnSizes) {
  const CacheShape shape{.layers = {{.n_kv_head = 3, .key_dim = 16, .value_dim = 64},
                                    {.n_kv_head = 1, .key_dim = 96, .value_dim = 32},
                                    {}},
                         .key_type = EntryType::kF16,
                         .value_type = EntryType::kF32};
  EXPECT_EQ(shape.entry_bytes(0), 16U * 2 + 64 * 4 + 2);
  EXPECT_EQ(shape.entry_bytes(1), 96U * 2 + 32 * 4 + 2);
  EXPECT_EQ(shape.n_heads(), 4);
  EXPECT_DOUBLE_EQ(shape.cut_entry_bytes(0).stored, (3 * 290.0 + 322.0) / 4);
  const auto pool = PagePool::create(0);
  RaggedCache cache(shape, pool);
  cache.extend_all(40, 0);
  for (int l = 0; l < 2; ++l) {
    for (int h = 0; h < shape.layer(l).n_kv_head; ++h) {
      for (std::int32_t i = 0; i < 40; ++i) {
        std::memset(cache.key_row(l, h, i), 10 * l + h + 1, shape.key_bytes(l));
        std::memset(cache.value_row(l, h, i), 10 * l + h + 5, shape.value_bytes(l));
      }
    }
  }
  EXPECT_EQ(cache.bytes(), 40U * (3 * 290 + 322));
  EXPECT_EQ(cache.bytes_in_pages(), 64U * (3 * 290 + 322));
  std::stringstream file;
  write_layers(cache, file);
  RaggedCache restored(shape, pool);
  restore_layers(restored, file);
  std::stringstream again;
  write_layers(restored, again);
  EXPECT_EQ(again.str(), file.str());
  CacheShape other = shape;
  other.layers[1].key_dim = 64;
  RaggedCache refusing(other, pool);
  file.seekg(0);
  test::expect_error(ErrorCode::kBadFile, "load it with the model and the cache types",
                     [&] { restore_layers(refusing, file); });

  // The staging buffer serves the layers in turn and has room for the largest.
  StagingBuffer staging(shape, 100, 0, pool);
  EXPECT_GE(staging.bytes(), 100U * 3 * 288 + 400);
  staging.begin_layer(1);
  std::memset(staging.value_row(0, 99), 7, shape.value_bytes(1));
  EXPECT_EQ(staging.run(0, 100).positions[99], 99);
  staging.begin_layer(0);
  std::memset(staging.value_row(2, 99), 7, shape.value_bytes(0));
  EXPECT_EQ(staging.run(2, 100).positions[0], 0);
}

INSTANTIATE_TEST_SUITE_P(Memories, SlidingLayers, testing::Values(TestMemory::kHost, TestMemory::kGuarded),
                         [](const auto& test) { return name_of(test.param); });

}  // namespace
}  // namespace winnow
