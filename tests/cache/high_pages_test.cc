// Caches whose pages differ: the best entries of a cut are stored in more bits, in whole pages before the others of
// their head, and entries after a cut may have their own types.
#include <algorithm>
#include <functional>
#include <sstream>

#include "cache/coded_rows.h"
#include "expect_error.h"
#include "sanitizers.h"

namespace winnow {
namespace {

CacheShape high_shape(int n_layer = 2, int n_kv_head = 2) {
  CacheShape shape = even_shape(n_layer, n_kv_head, 64, EntryType::kR4, EntryType::kR4);
  shape.high = {.key_type = EntryType::kQ8_0, .value_type = EntryType::kQ8_0, .fraction = 0.3};
  return shape;
}

// Expects the head's entries to be `rows`, up to the rounding of their types, and returns how many are stored in more
// bits. If was_coded, plain entries may have been coded before.
std::int64_t expect_stored(const RaggedCache& cache, int layer, int head, const std::vector<Row>& rows,
                           const std::string& what, bool was_coded = false) {
  constexpr double kMostOfThousands = 0.25;  // in 4 bits: the worst row among many
  const Found found = find(cache, layer, head);
  EXPECT_EQ(found.rows.size(), rows.size()) << what;
  for (std::size_t i = 0; i < std::min(rows.size(), found.rows.size()); ++i) {
    const bool is_coarse = found.types[i] == EntryType::kR4 || (was_coded && found.is_plain[i]);
    const double most = is_coarse ? kMostOfThousands : most_error(found.types[i]);
    EXPECT_EQ(found.rows[i].position, rows[i].position) << what << ", entry " << i;
    EXPECT_LT(relative_distance(found.rows[i].key, rows[i].key), most) << what << ", entry " << i;
    EXPECT_LT(relative_distance(found.rows[i].value, rows[i].value), most) << what << ", entry " << i;
  }
  return std::count(found.types.begin(), found.types.end(), EntryType::kQ8_0);
}

std::vector<std::int32_t> random_high(const std::vector<std::int32_t>& kept, std::mt19937& random) {
  if (kept.size() < kPlainEntries + kPageEntries) return {};
  std::vector<std::int32_t> high(kept.begin() + kPlainEntries, kept.end());
  std::shuffle(high.begin(), high.end(), random);
  high.resize(random() % (high.size() / kPageEntries + 1) * kPageEntries);
  std::sort(high.begin(), high.end());
  return high;
}

TEST(HighPages, HoldTheEntriesThatAreNamed) {
  const CacheShape shape = high_shape();
  const auto pool = PagePool::create(0);
  std::mt19937 random(3);
  RaggedCache source(shape.plain(), pool), copied(shape, pool), kept(shape, pool);
  const std::vector<Row> rows = extend(source, 0, 0, 200, 0, random);
  std::vector<std::int32_t> chosen;
  std::vector<Row> expected;
  for (std::int32_t i = 0; i < 200; ++i) {
    if (i % 3 == 1) continue;
    chosen.push_back(i);
    expected.push_back(rows[static_cast<std::size_t>(i)]);
  }
  const std::vector<std::int32_t> high = [&] {
    std::vector<std::int32_t> list;
    for (std::size_t i = 5; list.size() < 2 * kPageEntries; i += 2) list.push_back(chosen[i]);
    return list;
  }();
  copied.append_from(0, 0, source.entries(0, 0), chosen, high);
  kept.append_from(0, 0, source.entries(0, 0), range(0, 200));
  kept.keep(0, 0, chosen, high);
  const std::size_t bytes =
      shape.head_bytes(0, std::ssize(chosen)) + high.size() * (shape.high_entry_bytes(0) - shape.entry_bytes(0));
  for (const RaggedCache* cache : {&copied, &kept}) {
    EXPECT_EQ(cache->bytes(), bytes);
    if (cache == &kept) continue;  // its high entries had fewer bits before
    expect_stored(*cache, 0, 0, expected, "cut");
    const Found found = find(*cache, 0, 0);
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      const bool is_high = std::binary_search(high.begin(), high.end(), chosen[i]);
      EXPECT_EQ(found.types[i] == EntryType::kQ8_0, is_high) << i;
      EXPECT_EQ(found.is_plain[i], i < kPlainEntries) << i;
    }
  }

  // Runs are whole pages, whatever the positions; in ascending order of positions they are parts of pages.
  EXPECT_EQ(copied.entries(0, 0).runs.size(), 1 + 2 + (chosen.size() - kPlainEntries - high.size() + 31) / 32);

  // New entries are plain, and get the types of the coarse entries once their page is full.
  const std::size_t n_before = expected.size();
  for (Row& row : extend(copied, 0, 0, 2 * kPageEntries, 200, random)) expected.push_back(std::move(row));
  copied.settle();
  EXPECT_EQ(expect_stored(copied, 0, 0, expected, "turn"), std::ssize(high));
  copied.truncate(200);
  expected.resize(n_before);
  EXPECT_EQ(expect_stored(copied, 0, 0, expected, "truncated"), std::ssize(high));
  copied.truncate(150);
  while (expected.back().position >= 150) expected.pop_back();
  EXPECT_EQ(expect_stored(copied, 0, 0, expected, "truncated between coded entries"), kPageEntries);
  copied.truncate(0);
  EXPECT_EQ(copied.n_entries(0, 0), 0);
  EXPECT_EQ(copied.bytes(), 0U);
}

void expect_random_operations_hold(const CacheShape& shape) {
  const auto pool = PagePool::create(0);
  std::mt19937 random(17);
  std::vector<Sequence> sequences;
  sequences.push_back({RaggedCache(shape, pool)});
  std::int64_t n_high = 0;
  for (int step = 0; step < (test::kHasSanitizers ? 120 : 300); ++step) {
    Sequence& s = sequences[random() % sequences.size()];
    const int head = static_cast<int>(random() % 4);
    const auto operation = random() % 7;
    if (operation < 2) {
      const auto n = static_cast<std::int32_t>(random() % (operation == 0 ? 120 : 3));
      s.extend_head(head, n, random);
    } else if (operation == 2) {
      s.cache.settle();
    } else if (operation == 3) {
      s.keep_some(head, 4, random, [&](const auto& chosen) { return random_high(chosen, random); });
    } else if (operation == 4 && sequences.size() < 4) {
      Sequence fork = s.fork();
      sequences.push_back(std::move(fork));
    } else if (operation == 5) {
      ASSERT_NO_FATAL_FAILURE(s.write_and_restore(pool));
    } else if (operation == 6 && s.next_position > 0 && random() % 3 == 0) {
      const auto position = static_cast<std::int32_t>(random() % static_cast<unsigned>(s.next_position));
      s.cache.truncate(position);
      for (std::vector<Row>& of_head : s.rows) {
        while (!of_head.empty() && of_head.back().position >= position) of_head.pop_back();
      }
      s.next_position = position;
    }
    for (Sequence& other : sequences) {
      for (int h = 0; h < 4; ++h) {
        n_high += expect_stored(other.cache, h / 2, h % 2, other.rows[static_cast<std::size_t>(h)],
                                "operation " + std::to_string(operation) + ", step " + std::to_string(step), true);
        if (testing::Test::HasFailure()) return;
        other.rows[static_cast<std::size_t>(h)] = find(other.cache, h / 2, h % 2).rows;  // one rounding per step
      }
    }
    if (sequences.size() == 1) {
      ASSERT_EQ(pool->statistics().bytes_in_use, s.cache.bytes_in_pages());
    }
  }
  EXPECT_GT(n_high, 1000);
  sequences.clear();
  EXPECT_EQ(pool->statistics().pages_in_use, 0U);
}

TEST(HighPages, EqualPlainVectorsUnderRandomOperations) { expect_random_operations_hold(high_shape()); }

TEST(LaterPages, EqualPlainVectorsUnderRandomOperations) {
  CacheShape shape = high_shape();
  shape.later = {.key_type = EntryType::kQ8_0, .value_type = EntryType::kQ8_0};
  expect_random_operations_hold(shape);
}

// Entries after a cut have their own types until the next cut, also in forks and files.
TEST(LaterPages, HoldWhatFollowsACut) {
  CacheShape shape = even_shape(1, 1, 64, EntryType::kR4, EntryType::kR3);
  shape.later = {.key_type = EntryType::kQ8_0, .value_type = EntryType::kR4};
  const auto pool = PagePool::create(0);
  std::mt19937 random(13);
  RaggedCache source(shape.plain(), pool), cache(shape, pool);
  constexpr std::int32_t kCut = kPlainEntries + 2 * kPageEntries, kMore = 2 * kPageEntries + 5;
  std::vector<Row> rows = extend(source, 0, 0, kCut, 0, random);
  cache.append_from(0, 0, source.entries(0, 0), range(0, kCut));
  for (Row& row : extend(cache, 0, 0, kMore, kCut, random)) rows.push_back(std::move(row));
  cache.settle();
  const auto expect_types = [&](const RaggedCache& of) {
    const std::span<const kernels::EntryRun> runs = of.entries(0, 0).runs;
    ASSERT_EQ(runs.size(), 6U);
    constexpr EntryType kTypes[6][2] = {{EntryType::kF16, EntryType::kF16}, {EntryType::kR4, EntryType::kR3},
                                        {EntryType::kR4, EntryType::kR3},   {EntryType::kQ8_0, EntryType::kR4},
                                        {EntryType::kQ8_0, EntryType::kR4}, {EntryType::kF16, EntryType::kF16}};
    for (std::size_t page = 0; page < runs.size(); ++page) {
      EXPECT_EQ(runs[page].key_type, kTypes[page][0]) << page;
      EXPECT_EQ(runs[page].value_type, kTypes[page][1]) << page;
    }
  };
  expect_types(cache);
  const Found found = find(cache, 0, 0);
  for (std::size_t i = kCut; i < rows.size(); ++i) {
    EXPECT_LT(relative_distance(found.rows[i].key, rows[i].key), most_error(EntryType::kQ8_0)) << i;
    EXPECT_LT(relative_distance(found.rows[i].value, rows[i].value), most_error(EntryType::kR4)) << i;
  }

  std::stringstream file;
  cache.write(file, 0);
  RaggedCache restored(shape, pool);
  restored.restore(file, 0);
  expect_types(restored);
  EXPECT_EQ(restored.bytes(), cache.bytes());
  const Found again = find(restored, 0, 0);
  for (std::size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(again.rows[i].key, found.rows[i].key) << i;

  // A cut stores all entries in the types of the coarse ones; a fork keeps its pages.
  const RaggedCache fork = cache.fork();
  cache.keep(0, 0, range(0, kCut + kMore));
  EXPECT_EQ(cache.bytes(), shape.head_bytes(0, kCut + kMore));
  expect_types(fork);

  // Files are refused by a cache without such pages, and when their first page is of this kind.
  const std::string bytes = file.str();
  CacheShape alike = shape;
  alike.later.reset();
  const auto refusal = [&](const CacheShape& target, std::string changed) {
    std::istringstream in(changed);
    test::expect_error(ErrorCode::kBadFile, "impossible page", [&] { RaggedCache(target, pool).restore(in, 0); });
  };
  refusal(alike, bytes);
  std::string first = bytes;
  first[7 * sizeof(std::int32_t)] = 3;
  refusal(shape, first);
}

// While layers are cut one after the other, entries lose bits and values are held: an entry that stays in more bits to
// the end is rounded once, with and without memory for smaller pages.
TEST(HighPages, WaitForTheirValuesAndGiveUpBits) {
  const CacheShape shape = high_shape(1, 1);
  for (const std::size_t limit : {std::size_t{0}, std::size_t{7 * 12'000}}) {
    const auto pool = PagePool::create(0), limited = PagePool::create(limit);
    std::mt19937 random(11);
    RaggedCache source(shape.plain(), pool), at_once(shape, pool), waiting(shape, limited);
    extend(source, 0, 0, 180, 0, random);
    std::vector<std::int32_t> third;
    for (std::int32_t i = 0; i < 180; ++i) {
      if (i < kPlainEntries || i % 3 != 1) third.push_back(i);
    }
    const std::vector<std::int32_t> high(third.begin() + 20, third.begin() + 20 + kPageEntries);
    const std::vector<std::int32_t> most(third.begin() + 10, third.begin() + 10 + 3 * kPageEntries);
    at_once.append_from(0, 0, source.entries(0, 0), third, high);
    waiting.hold_values();
    waiting.append_from(0, 0, source.entries(0, 0), range(0, 180), most);
    waiting.keep(0, 0, third, high);  // indices of the stored entries, which are all 180
    EXPECT_TRUE(waiting.holds_values());
    waiting.code_values([](int n, const std::function<void(int)>& body) {
      for (int i = 0; i < n; ++i) body(i);
    });
    EXPECT_EQ(waiting.bytes(), at_once.bytes());
    const Found found = find(waiting, 0, 0), expected = find(at_once, 0, 0);
    ASSERT_EQ(found.rows.size(), expected.rows.size());
    EXPECT_EQ(found.types, expected.types);
    for (std::size_t i = 0; i < expected.rows.size(); ++i) {
      EXPECT_EQ(found.rows[i].position, expected.rows[i].position) << i;
      EXPECT_EQ(found.rows[i].value, expected.rows[i].value) << i;
      if (expected.types[i] == EntryType::kQ8_0) {
        EXPECT_EQ(found.rows[i].key, expected.rows[i].key) << i;
      }
    }
  }
}

// A later cut writes only the pages on which an entry is dropped, added or changes its type. The others stay shared
// with a fork, and entries that move are not coded again.
TEST(HighPages, ACutWritesOnlyPagesThatChange) {
  const CacheShape shape = high_shape(1, 1);
  const auto pool = PagePool::create(0);
  std::mt19937 random(23);
  RaggedCache source(shape.plain(), pool), cache(shape, pool);
  extend(source, 0, 0, kPlainEntries + 8 * kPageEntries, 0, random);
  const std::vector<std::int32_t> all = range(0, kPlainEntries + 8 * kPageEntries);
  std::vector<std::int32_t> high;  // two pages
  for (std::int32_t i = 10; std::ssize(high) < 2 * kPageEntries; i += 3) high.push_back(i);
  cache.append_from(0, 0, source.entries(0, 0), all, high);
  const auto n_written = [&](std::vector<std::int32_t> kept, const std::vector<std::int32_t>& kept_high) {
    RaggedCache cut = cache.fork();
    const Found before = find(cut, 0, 0);
    cut.keep(0, 0, kept, kept_high);
    const Found after = find(cut, 0, 0);
    for (std::size_t i = 0; i < kept.size(); ++i) {
      const auto from = static_cast<std::size_t>(kept[i]);
      EXPECT_EQ(after.rows[i].position, before.rows[from].position);
      if (after.types[i] != before.types[from]) continue;
      EXPECT_EQ(after.rows[i].key, before.rows[from].key) << i;
    }
    std::int64_t n = 0;
    for (const kernels::EntryRun& run : cut.entries(0, 0).runs) {
      bool is_shared = false;
      for (const kernels::EntryRun& old : cache.entries(0, 0).runs) is_shared |= old.keys == run.keys;
      n += is_shared ? 0 : 1;
    }
    return n;
  };
  EXPECT_EQ(n_written(all, high), 0) << "nothing changes";
  std::vector<std::int32_t> kept = all;
  kept.pop_back();
  EXPECT_EQ(n_written(kept, high), 0) << "the last entry goes";
  kept = all;
  const std::int32_t coarse = 12;  // the first page after the high ones begins with 4 to 9, 11 and 12
  kept.erase(std::find(kept.begin(), kept.end(), coarse));
  EXPECT_EQ(n_written(kept, high), 6) << "one of the first page of six in fewer bits goes";
  // The last high entry and the coarse one after it swap types: the last high page changes, and the coarse pages from
  // there on.
  std::vector<std::int32_t> other = high;
  other.back() += 1;
  EXPECT_EQ(n_written(all, other), 2) << "an entry loses its bits to its neighbour";
}

// A turn that was dropped has made the last page plain, and its entries lie before the last of those in more bits.
TEST(HighPages, ADroppedTurnLeavesWhatAFileCanHold) {
  const CacheShape shape = high_shape(1, 1);
  const auto pool = PagePool::create(0);
  std::mt19937 random(9);
  RaggedCache source(shape.plain(), pool), cache(shape, pool), restored(shape, pool);
  extend(source, 0, 0, 60, 0, random);
  const std::vector<std::int32_t> all = range(0, 60);
  cache.append_from(0, 0, source.entries(0, 0), all, std::span(all).subspan(60 - kPageEntries));
  extend(cache, 0, 0, 2, 60, random);
  cache.truncate(60);
  std::stringstream file;
  cache.write(file, 0);
  restored.restore(file, 0);
  EXPECT_EQ(find(restored, 0, 0).rows.size(), 60U);
  EXPECT_EQ(restored.bytes(), cache.bytes());
}

TEST(HighPages, RefuseFilesThatCannotBe) {
  const CacheShape shape = high_shape(1, 1);
  const auto pool = PagePool::create(0);
  std::mt19937 random(5);
  RaggedCache source(shape.plain(), pool), cache(shape, pool);
  extend(source, 0, 0, 100, 0, random);
  const std::vector<std::int32_t> all = range(0, 100);
  cache.append_from(0, 0, source.entries(0, 0), all, std::span(all).subspan(10, kPageEntries));
  const std::string bytes = bytes_of(cache);
  const auto refusal = [&](const CacheShape& target, std::size_t at, std::int32_t value) {
    std::string changed = bytes;
    std::copy_n(reinterpret_cast<const char*>(&value), sizeof(value), changed.data() + at);
    std::istringstream in(changed);
    RaggedCache restored(target, pool);
    try {
      restored.restore(in, 0);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const std::size_t origin = 2 * sizeof(std::int32_t) + 128;
  const std::size_t first_page = 6 * sizeof(std::int32_t) + origin;  // after the shape and the head's count
  const std::size_t first_rows = 4 * (sizeof(std::int32_t) + 2 * 128);
  const std::size_t high_page = first_page + 8 + first_rows, position = high_page + 8;
  EXPECT_EQ(refusal(shape, first_page, 4), "") << "unchanged";
  EXPECT_NE(refusal(shape, first_page + 4, 2).find("impossible page"), std::string::npos)
      << "a first page in more bits";
  EXPECT_NE(refusal(shape, high_page, 31).find("impossible page"), std::string::npos) << "a page that is not full";
  EXPECT_NE(refusal(shape, high_page + 4, 4).find("impossible page"), std::string::npos);
  EXPECT_NE(refusal(shape, position, 3).find("order"), std::string::npos) << "before the first page's end";
  EXPECT_NE(refusal(shape, position, 9).find("twice"), std::string::npos) << "as another entry";
  CacheShape alike = shape;
  alike.high.reset();
  EXPECT_NE(refusal(alike, first_page, 4).find("impossible page"), std::string::npos) << "a cache without such pages";
}

}  // namespace
}  // namespace winnow
