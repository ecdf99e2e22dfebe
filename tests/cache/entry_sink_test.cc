#include "cache/entry_sink.h"

#include <gtest/gtest.h>

#include "cache/cache_test_support.h"
#include "cache/guarded_memory.h"
#include "cache/staging_buffer.h"

namespace winnow {
namespace {

// Expects a head's pages to hold its first n entries at the addresses where rows are written.
void expect_pages(EntrySink& sink, int kv_head, std::int32_t n) {
  const HeadRows rows = sink.head_rows(kv_head);
  ASSERT_EQ(rows.n_entries, n);
  ASSERT_EQ(std::ssize(rows.pages), (rows.first_slot + n + kPageEntries - 1) / kPageEntries);
  for (std::int32_t e = 0; e < n; ++e) {
    const std::int32_t slot = rows.first_slot + e;
    const PageRows& page = rows.pages[static_cast<std::size_t>(slot / kPageEntries)];
    const auto place = static_cast<std::size_t>(slot % kPageEntries);
    ASSERT_EQ(page.keys + place * sink.shape().key_bytes(0), sink.key_row(kv_head, e));
    ASSERT_EQ(page.values + place * sink.shape().value_bytes(0), sink.value_row(kv_head, e));
  }
}

// Writes rows of every layer in pieces, as the pass over a prompt does. After each piece, all rows so far must be where
// the next one attends to them.
void write_rows(EntrySink& sink, EntryMemory& memory, std::int32_t first_position, std::int32_t n_rows,
                std::int32_t n_piece) {
  const CacheShape& shape = sink.shape();
  for (int l = 0; l < shape.n_layer(); ++l) {
    for (std::int32_t done = 0; done < n_rows; done += n_piece) {
      const std::int32_t n = std::min(n_piece, n_rows - done);
      sink.begin_rows(l, first_position + done, n);
      for (int h = 0; h < shape.layer(l).n_kv_head; ++h) {
        const auto seed = static_cast<std::uint32_t>(10 * l + h);
        const EntrySink::Head head = sink.head(h);
        for (std::int32_t r = 0; r < n; ++r) {
          const TestEntry entry = make_entry(shape, first_position + done + r, seed);
          memory.write(sink.key_row(h, head.n_before + r), entry.key.data(), entry.key.size());
          memory.write(sink.value_row(h, head.n_before + r), entry.value.data(), entry.value.size());
        }
        ASSERT_GE(head.entries.n_entries, head.n_before + n);
        const std::vector<TestEntry> seen = read_entries(shape, head.entries, memory);
        for (std::int32_t r = -done; r < n; ++r) {
          EXPECT_EQ(seen[static_cast<std::size_t>(head.n_before + r)],
                    make_entry(shape, first_position + done + r, seed));
        }
        expect_pages(sink, h, head.n_before + n);
      }
    }
  }
}

class EntrySinkTest : public testing::TestWithParam<TestMemory> {
 protected:
  std::shared_ptr<EntryMemory> memory_ = make_memory(GetParam());
};

TEST_P(EntrySinkTest, AStagingBufferServesTheLayersInTurn) {
  const CacheShape shape = even_shape(2, 3, 32);
  StagingBuffer staging(shape, 70, 5, PagePool::create(0, memory_));
  for (const std::int32_t n_piece : {1, 32, 70}) write_rows(staging, *memory_, 5, 70, n_piece);
}

TEST_P(EntrySinkTest, ACacheTakesRowsBehindWhatItsHeadsHold) {
  CacheShape shape = even_shape(2, 3, 32);
  shape.layers[1].sliding_window = 20;
  for (const std::int32_t n_piece : {1, 7, 32, 70}) {
    RaggedCache cache(shape, PagePool::create(0, memory_));
    for (int l = 0; l < 2; ++l) {
      for (int h = 0; h < 3; ++h) {
        extend_and_write(cache, l, h, 40, 0, static_cast<std::uint32_t>(10 * l + h));
        const std::vector<std::int32_t> kept{1, 4, 9 + h, 30};
        if (l == 0) cache.keep(l, h, std::span(kept).first(static_cast<std::size_t>(2 + h % 2)));
      }
    }
    cache.settle();
    cache.extend_all(70, 40);
    CacheSink sink(cache);
    write_rows(sink, *memory_, 40, 70, n_piece);
    EXPECT_EQ(cache.n_entries(0, 0), 2 + 70);
    EXPECT_EQ(cache.n_entries(0, 1), 3 + 70);
    EXPECT_EQ(cache.n_entries(1, 0), 20 + 70);
    EXPECT_EQ(read_head(cache, 0, 1)[2], make_entry(shape, 10, 1));
  }
}

INSTANTIATE_TEST_SUITE_P(Memories, EntrySinkTest, testing::Values(TestMemory::kHost, TestMemory::kGuarded),
                         [](const auto& test) { return name_of(test.param); });

}  // namespace
}  // namespace winnow
