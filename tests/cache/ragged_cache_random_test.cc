// Random operations on a family of forked caches, each mirrored in plain vectors. After every operation ALL caches must
// equal their mirrors: a fork that sees another's write fails at once. So must a copy of each page table that is
// updated from the reported changes alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <sstream>
#include <string>

#include "cache/cache_test_support.h"
#include "cache/guarded_memory.h"

namespace winnow {
namespace {

using Mirror = std::vector<std::vector<TestEntry>>;  // [n_layer * n_kv_head][entries]

struct MirroredCache {
  RaggedCache cache;
  Mirror mirror;
  std::int32_t next_position = 0;
  std::vector<std::vector<PageRows>> pages = {};  // [n_layer * n_kv_head], only grows
};

struct RandomCase {
  CacheShape shape;
  TestMemory memory = TestMemory::kHost;
};

class RaggedCacheRandomTest : public testing::TestWithParam<RandomCase> {
 protected:
  void SetUp() override { add_sequence(); }

  std::int32_t below(std::size_t n) { return static_cast<std::int32_t>(random_() % n); }
  std::size_t n_heads() const { return static_cast<std::size_t>(shape_.n_heads()); }
  int layer_of(std::size_t head) const { return static_cast<int>(head) / shape_.layer(0).n_kv_head; }
  int kv_head_of(std::size_t head) const { return static_cast<int>(head) % shape_.layer(0).n_kv_head; }

  void add_sequence() { sequences_.push_back({RaggedCache(shape_, pool_), Mirror(n_heads()), 0}); }

  // Returns a random ascending choice from [0, n): none to all of it, sometimes with a prefix.
  std::vector<std::int32_t> choose(std::size_t n) {
    std::vector<std::int32_t> chosen;
    const std::int32_t percent = below(5) * 25;
    const std::int32_t n_prefix = below(4) == 0 ? below(n + 1) : 0;
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(n); ++i) {
      if (i < n_prefix || below(100) < percent) chosen.push_back(i);
    }
    return chosen;
  }

  void extend(MirroredCache& s) {
    if (below(6) == 0) s.next_position += below(200'000);  // more than the offsets of a page reach
    const std::int32_t n = below(4) == 0 ? below(90) : below(5);
    const std::uint32_t seed = ++n_written_;
    for (std::size_t head = 0; head < n_heads(); ++head) {
      if (below(4) == 0) continue;
      extend_and_write(s.cache, layer_of(head), kv_head_of(head), n, s.next_position, seed);
      for (std::int32_t i = 0; i < n; ++i) s.mirror[head].push_back(make_entry(shape_, s.next_position + i, seed));
    }
    s.next_position += n;
  }

  void rewrite_row(MirroredCache& s, std::size_t head) {
    auto& entries = s.mirror[head];
    if (entries.empty()) return;
    const std::int32_t i = below(entries.size());
    TestEntry& entry = entries[static_cast<std::size_t>(i)];
    entry = make_entry(shape_, entry.position, ++n_written_);
    write_entry(s.cache, layer_of(head), kv_head_of(head), i, entry);
  }

  void keep(MirroredCache& s, std::size_t head) {
    const auto chosen = choose(s.mirror[head].size());
    s.cache.keep(layer_of(head), kv_head_of(head), chosen);
    std::vector<TestEntry> kept;
    for (const std::int32_t i : chosen) kept.push_back(s.mirror[head][static_cast<std::size_t>(i)]);
    s.mirror[head] = std::move(kept);
  }

  void truncate(MirroredCache& s) {
    const std::int32_t position = s.next_position - below(static_cast<std::size_t>(s.next_position / 4 + 1));
    s.cache.truncate(position);
    for (auto& entries : s.mirror) {
      std::erase_if(entries, [&](const TestEntry& entry) { return entry.position >= position; });
    }
    s.next_position = position;
  }

  // Appends entries of a scratch cache, whose positions follow those of the sequence.
  void append_from(MirroredCache& s, std::size_t head) {
    const std::int32_t n = below(80);
    const std::uint32_t seed = ++n_written_;
    RaggedCache scratch(shape_, pool_);
    extend_and_write(scratch, 0, 0, n, s.next_position, seed);
    const auto chosen = choose(static_cast<std::size_t>(n));
    s.cache.append_from(layer_of(head), kv_head_of(head), scratch.entries(0, 0), chosen);
    for (const std::int32_t i : chosen) s.mirror[head].push_back(make_entry(shape_, s.next_position + i, seed));
    s.next_position += n;
  }

  // Writes the cache to a file and restores it. The file is the same whichever memory writes it, and is read by way of
  // the host's.
  void write_and_restore(MirroredCache& s) {
    std::stringstream stream, again;
    write_layers(s.cache, stream);
    RaggedCache on_host(shape_, PagePool::create(0)), restored(shape_, pool_);
    restore_layers(on_host, stream);
    write_layers(on_host, again);
    ASSERT_EQ(stream.str(), again.str());
    restore_layers(restored, again);
    s.cache = std::move(restored);
  }

  void clear(MirroredCache& s) {
    s.cache.clear();
    s.mirror = Mirror(n_heads());
    s.next_position = 0;
  }

  void check_pages(RaggedCache& cache, int layer, int kv_head, std::vector<PageRows>& pages,
                   const std::string& operation) {
    const std::size_t n_pages = cache.n_pages(layer, kv_head);
    const std::size_t first = cache.take_changes(layer, kv_head);
    ASSERT_GE(cache.take_changes(layer, kv_head), n_pages);
    pages.resize(std::max(pages.size(), n_pages));
    for (std::size_t page = first; page < n_pages; ++page) pages[page] = cache.page_rows(layer, kv_head, page);
    const HeadRows rows = cache.head_rows(layer, kv_head);
    ASSERT_EQ(std::vector(pages.begin(), pages.begin() + std::ssize(rows.pages)), rows.pages) << operation;
    std::int32_t slot = rows.first_slot;
    for (const kernels::EntryRun& run : cache.entries(layer, kv_head).runs) {
      for (std::int32_t i = 0; i < run.n_entries; ++i, ++slot) {
        const PageRows& page = rows.pages[static_cast<std::size_t>(slot / kPageEntries)];
        const auto place = static_cast<std::size_t>(slot % kPageEntries), of_run = static_cast<std::size_t>(i);
        ASSERT_EQ(page.keys + place * shape_.key_bytes(layer), run.keys + of_run * shape_.key_bytes(layer));
        ASSERT_EQ(page.values + place * shape_.value_bytes(layer), run.values + of_run * shape_.value_bytes(layer));
      }
    }
    ASSERT_EQ(slot, rows.first_slot + rows.n_entries);
  }

  void check(const std::string& operation) {
    for (const MirroredCache& s : sequences_) {
      std::int64_t n_entries = 0;
      std::size_t n_pages = 0;
      for (std::size_t head = 0; head < n_heads(); ++head) {
        const auto& expected = s.mirror[head];
        const kernels::HeadEntries entries = s.cache.entries(layer_of(head), kv_head_of(head));
        ASSERT_EQ(entries.n_entries, static_cast<std::int32_t>(expected.size())) << operation;
        ASSERT_EQ(read_entries(shape_, entries, s.cache.memory()), expected) << operation << ", head " << head;
        n_entries += entries.n_entries;
        n_pages += (expected.size() + kPageEntries - 1) / kPageEntries;
      }
      ASSERT_EQ(s.cache.n_entries(), n_entries) << operation;
      ASSERT_EQ(s.cache.bytes_in_pages(), n_pages * shape_.page_bytes(0)) << operation;
    }
    for (MirroredCache& s : sequences_) {
      s.pages.resize(n_heads());
      for (std::size_t head = 0; head < n_heads(); ++head) {
        check_pages(s.cache, layer_of(head), kv_head_of(head), s.pages[head], operation);
      }
    }
    // A single sequence shares no pages: the pool holds its pages and no others.
    if (sequences_.size() == 1) {
      ASSERT_EQ(pool_->statistics().bytes_in_use, sequences_[0].cache.bytes_in_pages()) << operation;
    }
  }

  CacheShape shape_ = GetParam().shape;
  std::shared_ptr<EntryMemory> memory_ = make_memory(GetParam().memory);
  std::shared_ptr<PagePool> pool_ = PagePool::create(0, memory_);
  std::vector<MirroredCache> sequences_;
  std::mt19937 random_{20240607};
  std::uint32_t n_written_ = 0;
};

TEST_P(RaggedCacheRandomTest, EqualsPlainVectors) {
  for (int step = 0; step < 600; ++step) {
    const std::size_t which = random_() % sequences_.size();
    MirroredCache& s = sequences_[which];
    const std::size_t head = random_() % n_heads();
    std::string operation;
    switch (below(16)) {
      case 0:
      case 1:
      case 2:
      case 3:
      case 4:
        operation = "extend", extend(s);
        break;
      case 5:
      case 6:
        operation = "rewrite_row", rewrite_row(s, head);
        break;
      case 7:
      case 8:
      case 9:
        operation = "keep", keep(s, head);
        break;
      case 10:
        operation = "truncate", truncate(s);
        break;
      case 11:
      case 12:
        operation = "append_from", append_from(s, head);
        break;
      case 13:
        operation = "write and restore", write_and_restore(s);
        break;
      case 14:
        operation = "fork";
        if (sequences_.size() < 4) sequences_.push_back({s.cache.fork(), s.mirror, s.next_position});
        break;
      default:
        // A fork ends, or a single sequence is sometimes cleared.
        operation = "end";
        if (sequences_.size() > 1) {
          sequences_.erase(sequences_.begin() + static_cast<std::ptrdiff_t>(which));
        } else if (below(4) == 0) {
          clear(s);
        }
    }
    check("step " + std::to_string(step) + ": " + operation);
    if (HasFatalFailure()) return;
  }
  sequences_.clear();
  EXPECT_EQ(pool_->statistics().pages_in_use, 0U);
  EXPECT_EQ(pool_->statistics().bytes_resident, 0U);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, RaggedCacheRandomTest,
    testing::Values(RandomCase{even_shape(1, 1, 2, EntryType::kF16, EntryType::kF16)},
                    RandomCase{even_shape(2, 3, 16, EntryType::kF16, EntryType::kF16)},
                    RandomCase{even_shape(3, 1, 8, EntryType::kF32, EntryType::kF32)},
                    RandomCase{even_shape(1, 2, 10, EntryType::kF16, EntryType::kF32)},
                    RandomCase{even_shape(2, 2, 64, EntryType::kF32, EntryType::kF16)},
                    RandomCase{even_shape(2, 3, 16, EntryType::kF16, EntryType::kF16), TestMemory::kGuarded},
                    RandomCase{even_shape(1, 2, 64, EntryType::kBF16, EntryType::kBF16), TestMemory::kGuarded},
                    RandomCase{even_shape(3, 1, 8, EntryType::kF32, EntryType::kF32), TestMemory::kGuarded},
                    RandomCase{even_shape(1, 2, 10, EntryType::kF16, EntryType::kF32), TestMemory::kGuarded}),
    [](const auto& test) {
      const CacheShape& s = test.param.shape;
      return name_of(test.param.memory) + "_" + std::to_string(s.n_layer()) + "x" +
             std::to_string(s.layer(0).n_kv_head) + "x" + std::to_string(s.layer(0).key_dim) + "_" +
             std::string(entry_type_name(s.key_type)) + "_" + std::string(entry_type_name(s.value_type));
    });

}  // namespace
}  // namespace winnow
