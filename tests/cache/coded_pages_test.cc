// Caches whose types are codes: rows are written plain and coded with their full page or by a cut. A head's first
// entries are never coded.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <sstream>
#include <string>
#include <tuple>

#include "cache/coded_rows.h"
#include "cache/guarded_memory.h"
#include "expect_error.h"
#include "kernels/entries/code_feedback.h"
#include "kernels/entries/rotated_codes.h"
#include "sanitizers.h"

namespace winnow {
namespace {

struct ChosenRows {
  std::vector<std::int32_t> entries;
  std::vector<Row> rows;
};

ChosenRows every_second(const std::vector<Row>& rows) {
  ChosenRows chosen;
  for (std::size_t i = 0; i < rows.size(); i += 2) {
    chosen.entries.push_back(static_cast<std::int32_t>(i));
    chosen.rows.push_back(rows[i]);
  }
  return chosen;
}

// The type of keys and values, and whether they lie in a device's memory.
class CodedPages : public testing::TestWithParam<std::tuple<EntryType, bool>> {
 protected:
  EntryType type() const { return std::get<0>(GetParam()); }
  std::shared_ptr<PagePool> pool(std::size_t limit = 0) const {
    return std::get<1>(GetParam()) ? PagePool::create(limit, std::make_shared<GuardedMemory>())
                                   : PagePool::create(limit);
  }
  // Expects held values to be coded only once, whichever entries are dropped meanwhile.
  void expect_held_values_are_coded_once(std::size_t limit) const;

  CacheShape shape_ = even_shape(2, 2, 64, type(), type());
  std::shared_ptr<PagePool> pool_ = pool();
  std::mt19937 random_{7};
};

TEST_P(CodedPages, AreCodedWhenTheyAreFull) {
  RaggedCache cache(shape_, pool_);
  std::vector<Row> rows;
  for (std::int32_t n = 0; n < 3 * kPageEntries; ++n) {
    for (Row& row : extend(cache, 1, 0, 1, n, random_)) rows.push_back(std::move(row));
    EXPECT_TRUE(find(cache, 1, 0).is_plain.back()) << "a row comes plain";
    cache.settle();
    const Found found = find(cache, 1, 0);
    const std::int32_t n_coded = (n + 1 - kPlainEntries) / kPageEntries * kPageEntries;
    for (std::int32_t i = 0; i <= n; ++i) {
      const bool is_coded = i >= kPlainEntries && i < kPlainEntries + n_coded;
      ASSERT_EQ(found.is_plain[static_cast<std::size_t>(i)], !is_coded) << i << " of " << n + 1;
    }
    expect_rows(cache, 1, 0, rows, "after " + std::to_string(n));
  }
  // A plain row is what was written, to f16's rounding.
  EXPECT_LT(relative_distance(find(cache, 1, 0).rows[0].key, rows[0].key), 1e-3);
}

TEST_P(CodedPages, ACutCodesAllButTheFirstEntries) {
  RaggedCache source(shape_.plain(), pool_);
  const std::vector<Row> rows = extend(source, 0, 0, 150, 0, random_);
  const auto [chosen, expected] = every_second(rows);
  RaggedCache copied(shape_, pool_), kept(shape_, pool_);
  copied.append_from(0, 0, source.entries(0, 0), chosen);
  kept.append_from(0, 0, source.entries(0, 0), std::vector<std::int32_t>{});
  kept.extend(0, 0, 150, 0);
  for (std::int32_t i = 0; i < 150; ++i) store(kept, 0, 0, i, rows[static_cast<std::size_t>(i)]);
  kept.keep(0, 0, chosen);
  for (const RaggedCache* cache : {&copied, &kept}) {
    expect_rows(*cache, 0, 0, expected, "cut");
    EXPECT_EQ(cache->bytes(), shape_.head_bytes(0, 75));
    const Found found = find(*cache, 0, 0);
    for (std::size_t i = 0; i < found.is_plain.size(); ++i) EXPECT_EQ(found.is_plain[i], i < kPlainEntries) << i;
  }
  EXPECT_EQ(find(copied, 0, 0).rows[50].key, find(kept, 0, 0).rows[50].key) << "the same code either way";

  // New entries turn the last page plain, and it is coded again when it is full.
  const std::size_t before = copied.bytes();
  extend(copied, 0, 0, 1, 150, random_);
  EXPECT_GT(copied.bytes(), before + shape_.entry_bytes(0));
  extend(copied, 0, 0, kPageEntries, 151, random_);
  copied.settle();
  for (std::int32_t i = kPlainEntries; i < 100; ++i)
    EXPECT_FALSE(find(copied, 0, 0).is_plain[static_cast<std::size_t>(i)]);
}

TEST_P(CodedPages, DoNotDriftWhenTheyAreCodedAgain) {
  RaggedCache cache(shape_, pool_);
  extend(cache, 0, 0, 70, 0, random_);
  cache.settle();
  std::vector<std::int32_t> all(70);
  for (std::int32_t i = 0; i < 70; ++i) all[static_cast<std::size_t>(i)] = i;
  cache.keep(0, 0, all);
  const Found first = find(cache, 0, 0);
  for (std::int32_t round = 0; round < 40; ++round) {
    extend(cache, 0, 0, 1, 100 + round, random_);  // the last page turns plain
    cache.keep(0, 0, all);                         // and is coded again
  }
  const Found last = find(cache, 0, 0);
  for (std::size_t i = 0; i < 70; ++i) {
    EXPECT_LT(relative_distance(last.rows[i].key, first.rows[i].key), 0.02) << i;
    EXPECT_LT(relative_distance(last.rows[i].value, first.rows[i].value), 0.02) << i;
  }
}

TEST_P(CodedPages, EqualPlainVectorsUnderRandomOperations) {
  std::vector<Sequence> sequences;
  sequences.push_back({RaggedCache(shape_, pool_)});
  for (int step = 0; step < (test::kHasSanitizers ? 100 : 250); ++step) {
    Sequence& s = sequences[random_() % sequences.size()];
    const int head = static_cast<int>(random_() % 4);
    std::vector<Row>& rows = s.rows[static_cast<std::size_t>(head)];
    const auto operation = random_() % 8;
    if (operation < 3) {
      const auto n = static_cast<std::int32_t>(random_() % (operation == 0 ? 80 : 3));
      s.extend_head(head, n, random_);
    } else if (operation == 3) {
      s.cache.settle();
    } else if (operation == 4) {
      s.keep_some(head, 3, random_);
    } else if (operation == 5 && sequences.size() < 4) {
      Sequence fork = s.fork();
      sequences.push_back(std::move(fork));
    } else if (operation == 6) {
      ASSERT_NO_FATAL_FAILURE(s.write_and_restore(pool_));
    } else if (operation == 7 && !rows.empty()) {
      std::vector<float> values;
      for (Row& row : rows) {
        row.value = normal_row(random_, 64);
        values.insert(values.end(), row.value.begin(), row.value.end());
      }
      s.cache.store_values(head / 2, head % 2, values.data());
    }
    for (const Sequence& other : sequences) {
      for (int h = 0; h < 4; ++h) {
        expect_rows(other.cache, h / 2, h % 2, other.rows[static_cast<std::size_t>(h)],
                    "operation " + std::to_string(operation) + ", step " + std::to_string(step) + ", entry ");
      }
    }
    if (sequences.size() == 1) {
      ASSERT_EQ(pool_->statistics().bytes_in_use, s.cache.bytes_in_pages());
    }
  }
  sequences.clear();
  EXPECT_EQ(pool_->statistics().pages_in_use, 0U);
}

void CodedPages::expect_held_values_are_coded_once(std::size_t limit) const {
  const CacheShape shape = even_shape(1, 1, 64, type(), type());
  // The source must lie in the memory of both caches.
  const auto limited = PagePool::create(limit, pool_->memory());
  std::mt19937 random(11);
  RaggedCache source(shape.plain(), pool_), at_once(shape, pool_), waiting(shape, limited);
  extend(source, 0, 0, 150, 0, random);
  std::vector<std::int32_t> all(150), third;
  for (std::int32_t i = 0; i < 150; ++i) {
    all[static_cast<std::size_t>(i)] = i;
    if (i < kPlainEntries || i % 3 != 1) third.push_back(i);
  }
  at_once.append_from(0, 0, source.entries(0, 0), third);
  waiting.hold_values();
  waiting.append_from(0, 0, source.entries(0, 0), all);
  waiting.keep(0, 0, third);
  EXPECT_EQ(waiting.holds_values(), shape.held() != shape);
  waiting.code_values([](int n, const std::function<void(int)>& body) {
    for (int i = 0; i < n; ++i) body(i);
  });
  EXPECT_FALSE(waiting.holds_values());
  EXPECT_EQ(waiting.bytes(), at_once.bytes());
  const Found found = find(waiting, 0, 0), expected = find(at_once, 0, 0);
  ASSERT_EQ(found.rows.size(), expected.rows.size());
  EXPECT_EQ(found.is_plain, expected.is_plain);
  for (std::size_t i = 0; i < expected.rows.size(); ++i) {
    EXPECT_EQ(found.rows[i].position, expected.rows[i].position) << i;
    EXPECT_EQ(found.rows[i].key, expected.rows[i].key) << i;
    EXPECT_EQ(found.rows[i].value, expected.rows[i].value) << i;
  }
}

TEST_P(CodedPages, ValuesMayWaitForTheirCodes) { expect_held_values_are_coded_once(0); }

TEST_P(CodedPages, ValuesThatWaitedAreCodedWithoutMemory) {
  const CacheShape shape = even_shape(1, 1, 64, type(), type());
  const std::size_t first = (shape.plain().entry_bytes(0) * kPlainEntries + 63) / 64 * 64;
  expect_held_values_are_coded_once(first + 5 * ((shape.held().page_bytes(0) + 63) / 64 * 64));
}

INSTANTIATE_TEST_SUITE_P(Types, CodedPages,
                         testing::Combine(testing::Values(EntryType::kQ8_0, EntryType::kQ4_0, EntryType::kR4,
                                                          EntryType::kR3),
                                          testing::Bool()),
                         [](const auto& test) {
                           return std::string(entry_type_name(std::get<0>(test.param))) +
                                  (std::get<1>(test.param) ? "OnADevice" : "");
                         });

// The expected keys of a head, coded with feedback or without.
struct FedBack {
  explicit FedBack(EntryType coded_type) : type(coded_type) {
    std::vector<double> moment(64 * 64);
    for (std::size_t i = 0; i < 64; ++i) {
      for (std::size_t j = 0; j < 64; ++j) moment[i * 64 + j] = (i == j ? 0.1 : 0) + (i < 4 && j < 4 ? 2.0 : 0);
    }
    feedback = std::make_shared<const kernels::CodeFeedback>(*kernels::CodeFeedback::of(moment, 64));
  }

  // Returns the key rounded to float16.
  static std::vector<float> halved(const std::vector<float>& key) {
    std::vector<std::byte> plain(row_bytes(EntryType::kF16, 64));
    kernels::store_row(EntryType::kF16, key.data(), plain.data(), 64);
    std::vector<float> row(64);
    kernels::load_row(EntryType::kF16, plain.data(), row.data(), 64);
    return row;
  }

  // Sets the origin that keys are coded relative to: the mean of these rows' keys, without the first kPlainEntries.
  void set_origin(const std::vector<Row>& rows) {
    std::vector<double> sums(64);
    for (std::size_t i = kPlainEntries; i < rows.size(); ++i) {
      const std::vector<float> key = halved(rows[i].key);
      for (std::size_t c = 0; c < 64; ++c) sums[c] += static_cast<double>(key[c]);
    }
    for (std::size_t c = 0; c < 64; ++c) {
      origin[c] = static_cast<float>(sums[c] / static_cast<double>(rows.size() - kPlainEntries));
    }
    origin = halved(origin);
  }

  std::vector<float> coded(const std::vector<float>& key, bool feeds_back) const {
    std::vector<std::byte> code(row_bytes(type, 64));
    std::vector<float> row = halved(key);
    for (std::size_t c = 0; c < 64; ++c) row[c] -= origin[c];
    std::byte* const target = code.data();
    if (feeds_back) {
      kernels::store_coded_rows(type, *feedback, row.data(), {&target, 1});
    } else {
      kernels::store_row(type, row.data(), target, 64);
    }
    kernels::load_row(type, target, row.data(), 64);
    for (std::size_t c = 0; c < 64; ++c) row[c] += origin[c];
    return row;
  }

  // Checks the keys of all entries that are coded.
  void expect_keys(const RaggedCache& cache, const std::vector<Row>& rows, bool feeds_back, const std::string& what) {
    const Found found = find(cache, 0, 0);
    ASSERT_EQ(found.rows.size(), rows.size()) << what;
    int n_coded = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (found.types[i] != type) continue;
      ++n_coded;
      ASSERT_EQ(found.rows[i].key, coded(rows[i].key, feeds_back)) << what << ", entry " << i;
    }
    EXPECT_GE(n_coded, 64) << what;
  }

  EntryType type;
  std::shared_ptr<const kernels::CodeFeedback> feedback;
  std::vector<float> origin = std::vector<float>(64);
};

TEST(CodedPagesWithFeedback, CodeKeysByIt) {
  for (const EntryType type : {EntryType::kR4, EntryType::kR3}) {
    const CacheShape shape = even_shape(2, 2, 64, type, EntryType::kR4);
    const auto pool = PagePool::create(0);
    std::mt19937 random(11);
    FedBack keys(type);
    RaggedCache source(shape.plain(), pool);
    const std::vector<Row> rows = extend(source, 0, 0, 150, 0, random);
    const auto [chosen, kept_rows] = every_second(rows);
    keys.set_origin(rows);
    // Feedback need not bring each row nearer; here the two codes only have to differ.
    ASSERT_NE(keys.coded(rows[9].key, true), keys.coded(rows[9].key, false));

    RaggedCache copied(shape, pool), cut(shape, pool), settled(shape, pool);
    for (RaggedCache* cache : {&copied, &cut, &settled}) cache->set_feedback(0, 0, keys.feedback);
    copied.append_from(0, 0, source.entries(0, 0), chosen);
    keys.expect_keys(copied, kept_rows, true, "copied");
    for (RaggedCache* cache : {&cut, &settled}) {
      cache->extend(0, 0, 150, 0);
      for (std::int32_t i = 0; i < 150; ++i) store(*cache, 0, 0, i, rows[static_cast<std::size_t>(i)]);
    }
    RaggedCache forked = settled.fork();
    cut.keep(0, 0, chosen);
    keys.expect_keys(cut, kept_rows, true, "cut");
    settled.settle();
    keys.expect_keys(settled, rows, true, "settled");
    // A fork has the same feedback until it drops it. The other heads have none.
    RaggedCache dropped = forked.fork();
    forked.settle();
    keys.expect_keys(forked, rows, true, "forked");
    dropped.drop_feedback();
    dropped.settle();
    keys.expect_keys(dropped, rows, false, "dropped");
    keys.expect_keys(settled, rows, true, "settled, after a fork dropped it");
  }
}

TEST(CodedPagesWithFeedback, LeaveWhatIsCodedAlready) {
  const CacheShape shape = even_shape(1, 1, 64, EntryType::kR4, EntryType::kR4);
  std::mt19937 random(12);
  FedBack keys(EntryType::kR4);
  RaggedCache cache(shape, PagePool::create(0));
  const std::vector<Row> rows = extend(cache, 0, 0, 110, 0, random);
  cache.settle();
  keys.set_origin(rows);
  keys.expect_keys(cache, rows, false, "before");
  cache.set_feedback(0, 0, keys.feedback);
  std::vector<std::int32_t> all(110);
  for (std::int32_t i = 0; i < 110; ++i) all[static_cast<std::size_t>(i)] = i;
  cache.keep(0, 0, all);
  const Found found = find(cache, 0, 0);
  for (std::size_t i = kPlainEntries; i < 96; ++i) {
    ASSERT_EQ(found.rows[i].key, keys.coded(rows[i].key, false)) << i;
  }
}

TEST(CodedPagesOfWindows, AreCodedAndGivenBack) {
  CacheShape shape = even_shape(1, 1, 64, EntryType::kR4, EntryType::kQ8_0);
  shape.layers[0].sliding_window = 100;
  std::mt19937 random(3);
  const auto pool = PagePool::create(0);
  RaggedCache cache(shape, pool);
  std::vector<Row> rows;
  for (std::int32_t position = 5; position < 400;) {
    const auto n = static_cast<std::int32_t>(1 + random() % 40);
    for (Row& row : extend(cache, 0, 0, n, position, random)) rows.push_back(std::move(row));
    position += n;
    cache.settle();
    if (rows.size() > 100) rows.erase(rows.begin(), rows.end() - 100);
    expect_rows(cache, 0, 0, rows, "at " + std::to_string(position) + ", entry ");
    const Found found = find(cache, 0, 0);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      EXPECT_EQ(found.is_plain[i], rows[i].position / kPageEntries == position / kPageEntries) << i;
    }
  }
}

TEST(CodedPagesWithoutMemory, StayPlain) {
  const CacheShape shape = even_shape(1, 1, 64, EntryType::kR4, EntryType::kR4);
  const CacheShape plain = shape.plain();
  std::mt19937 random(5);
  const std::size_t first = (plain.entry_bytes(0) * kPlainEntries + 63) / 64 * 64;
  const auto pool = PagePool::create(first + plain.page_bytes(0) + 64);
  RaggedCache cache(shape, pool);
  const std::vector<Row> rows = extend(cache, 0, 0, kPlainEntries + kPageEntries, 0, random);
  cache.settle();  // no room for a coded page next to the plain one
  EXPECT_TRUE(find(cache, 0, 0).is_plain.back());
  expect_rows(cache, 0, 0, rows, "entry ");
  test::expect_error(ErrorCode::kOutOfMemory, "limit", [&] { extend(cache, 0, 0, 1, 40, random); });
  expect_rows(cache, 0, 0, rows, "entry ");
}

}  // namespace
}  // namespace winnow
