// Keys are coded relative to their head's origin, which stands for what all its keys have in common.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <sstream>
#include <string>

#include "cache/coded_rows.h"
#include "expect_error.h"
#include "kernels/entries/code_feedback.h"

namespace winnow {
namespace {

constexpr int kDim = 64;

// Returns a bias that all keys of a head share, a hundred times as large as their differences, like those of Qwen2.5
// 1.5B.
std::vector<float> large_bias() {
  std::vector<float> bias(kDim, 0.0F);
  for (int i = 40; i < 50; ++i) bias[static_cast<std::size_t>(i)] = i % 2 == 0 ? 300.0F : -250.0F;
  return bias;
}

// Appends rows of normal numbers whose keys have a bias to head 0 of layer 0, and returns them.
std::vector<Row> extend_biased(RaggedCache& cache, std::int32_t n, std::int32_t first_position, std::mt19937& random,
                               const std::vector<float>& bias = large_bias()) {
  const std::int32_t n_before = cache.n_entries(0, 0);
  std::vector<Row> rows = extend(cache, 0, 0, n, first_position, random);
  for (std::int32_t i = 0; i < n; ++i) {
    Row& row = rows[static_cast<std::size_t>(i)];
    for (std::size_t c = 0; c < kDim; ++c) row.key[c] += bias[c];
    store(cache, 0, 0, n_before + i, row);
  }
  return rows;
}

// Returns the root mean square error of coded keys, relative to their spread around the bias.
double error_of_keys(const RaggedCache& cache, const std::vector<Row>& expected, const std::vector<float>& bias) {
  const Found found = find(cache, 0, 0);
  EXPECT_EQ(found.rows.size(), expected.size());
  double error = 0, spread = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(found.rows[i].position, expected[i].position);
    if (found.is_plain[i]) continue;
    for (std::size_t c = 0; c < kDim; ++c) {
      error += std::pow(static_cast<double>(found.rows[i].key[c] - expected[i].key[c]), 2);
      spread += std::pow(static_cast<double>(expected[i].key[c] - bias[c]), 2);
    }
  }
  EXPECT_GT(spread, 0);
  return std::sqrt(error / spread);
}

class KeyOrigins : public testing::TestWithParam<EntryType> {
 protected:
  CacheShape shape(bool is_truncatable = false) const {
    CacheShape shape = even_shape(1, 1, kDim, GetParam(), GetParam());
    shape.is_truncatable = is_truncatable;
    return shape;
  }
  // Returns the largest error of codes of normal numbers that had a bias in float16 (steps of 1/4 between 256 and 512).
  double most() const { return most_error(GetParam()) + 0.03; }

  std::shared_ptr<PagePool> pool_ = PagePool::create(0);
  std::mt19937 random_{3};
};

TEST_P(KeyOrigins, KeepWhatTellsBiasedKeysApart) {
  for (const bool is_truncatable : {false, true}) {
    const CacheShape shape = this->shape(is_truncatable);
    RaggedCache source(shape.plain(), pool_), copied(shape, pool_), cut(shape, pool_), settled(shape, pool_);
    const std::vector<Row> rows = extend_biased(source, 150, 0, random_);
    copied.append_from(0, 0, source.entries(0, 0), range(0, 150));
    EXPECT_LT(error_of_keys(copied, rows, large_bias()), most()) << "copied";
    for (RaggedCache* cache : {&cut, &settled}) {
      cache->extend(0, 0, 150, 0);
      for (std::int32_t i = 0; i < 150; ++i) store(*cache, 0, 0, i, rows[static_cast<std::size_t>(i)]);
    }
    cut.keep(0, 0, range(0, 150));
    EXPECT_LT(error_of_keys(cut, rows, large_bias()), most()) << "cut";
    settled.settle();
    EXPECT_LT(error_of_keys(settled, rows, large_bias()), most()) << "settled";
    // New entries are coded relative to the same origin, and coded entries turn plain and are coded again.
    std::vector<Row> all = rows;
    for (Row& row : extend_biased(copied, 40, 150, random_)) all.push_back(std::move(row));
    copied.keep(0, 0, range(0, 190));
    EXPECT_LT(error_of_keys(copied, all, large_bias()), most() * 1.5) << "followed";
  }
}

TEST_P(KeyOrigins, AreTheMeanBehindTheFirstEntries) {
  for (const bool is_truncatable : {false, true}) {
    const CacheShape shape = this->shape(is_truncatable);
    RaggedCache source(shape.plain(), pool_), cache(shape, pool_);
    const std::vector<Row> rows = extend_biased(source, 150, 0, random_);
    cache.append_from(0, 0, source.entries(0, 0), std::vector<std::int32_t>{0, 1, 2, 3, 50, 60, 149});
    const std::size_t end = is_truncatable ? kPlainEntries + kPageEntries : 150;
    const kernels::EntryRun& coded = cache.entries(0, 0).runs.back();
    ASSERT_NE(coded.origin, nullptr);
    EXPECT_EQ(cache.entries(0, 0).runs.front().origin, nullptr) << "the first entries are as they came";
    std::vector<float> origin(kDim);
    kernels::load_row(EntryType::kF16, coded.origin, origin.data(), kDim);
    for (std::size_t c = 0; c < kDim; ++c) {
      double sum = 0;
      for (std::size_t i = kPlainEntries; i < end; ++i) sum += static_cast<double>(rows[i].key[c]);
      const double mean = sum / static_cast<double>(end - kPlainEntries);
      EXPECT_NEAR(static_cast<double>(origin[c]), mean, 1e-3 * std::abs(mean) + 1e-3) << c;
    }
    EXPECT_EQ(cache.bytes(), shape.head_bytes(0, 7));
  }
}

TEST_P(KeyOrigins, OfWindowsAreThoseOfTheirFirstCodes) {
  for (const bool is_truncatable : {false, true}) {
    CacheShape shape = this->shape(is_truncatable);
    shape.layers[0].sliding_window = 100;
    RaggedCache cache(shape, pool_);
    std::vector<Row> rows;
    for (std::int32_t position = 5; position < 400; position += 45) {
      for (Row& row : extend_biased(cache, 45, position, random_)) rows.push_back(std::move(row));
      cache.settle();
      if (rows.size() > 100) rows.erase(rows.begin(), rows.end() - 100);
      ASSERT_LT(error_of_keys(cache, rows, large_bias()), most() * 1.5) << "at " << position;
    }
  }
}

TEST_P(KeyOrigins, LeaveNoTraceOfWhatWasTruncated) {
  const CacheShape shape = this->shape(true);
  RaggedCache source(shape.plain(), pool_), longer(shape, pool_), shorter(shape, pool_);
  extend_biased(source, 68, 0, random_);
  // The later keys have another bias.
  std::vector<float> other(kDim, 40.0F);
  extend_biased(source, 100, 68, random_, other);
  longer.append_from(0, 0, source.entries(0, 0), range(0, 168));
  shorter.append_from(0, 0, source.entries(0, 0), range(0, 68));
  RaggedCache back = longer.fork();
  back.truncate(68);
  EXPECT_EQ(bytes_of(back), bytes_of(shorter));
  back.truncate(kPlainEntries);
  RaggedCache first(shape, pool_);
  first.append_from(0, 0, source.entries(0, 0), range(0, kPlainEntries));
  EXPECT_EQ(bytes_of(back), bytes_of(first)) << "no code, no origin";
  EXPECT_NE(longer.entries(0, 0).runs.back().origin, nullptr) << "a fork's truncation is its own affair";
}

TEST_P(KeyOrigins, ComeFromFilesWithThem) {
  const CacheShape shape = this->shape();
  RaggedCache source(shape.plain(), pool_), cache(shape, pool_);
  extend_biased(source, 70, 0, random_);
  cache.append_from(0, 0, source.entries(0, 0), range(0, 70));
  const std::string bytes = bytes_of(cache);
  RaggedCache restored(shape, pool_);
  const auto restore = [&](const std::string& from) {
    std::istringstream in(from);
    restored.restore(in, 0);
  };
  restore(bytes);
  EXPECT_EQ(restored.bytes(), cache.bytes());
  EXPECT_EQ(find(restored, 0, 0).rows[60].key, find(cache, 0, 0).rows[60].key);

  // The origin is stored after the shape and the head's count.
  const std::size_t at = 6 * sizeof(std::int32_t), size = 2 * sizeof(std::int32_t) + 2 * kDim;
  const std::string origin = bytes.substr(at, size);
  std::string twice = bytes, late = bytes, infinite = bytes;
  twice.insert(at, origin);
  test::expect_error(ErrorCode::kBadFile, "impossible page", [&] { restore(twice); });
  const std::uint16_t infinity = 0x7C00;
  std::memcpy(infinite.data() + at + 8, &infinity, sizeof(infinity));
  test::expect_error(ErrorCode::kBadFile, "not finite", [&] { restore(infinite); });
  late.insert(at + size + 8 + kPlainEntries * (4 + 4 * kDim), origin);  // after the first page
  late.erase(at, size);
  test::expect_error(ErrorCode::kBadFile, "impossible page", [&] { restore(late); });
}

// Files from before there were origins have codes of whole keys, and keys that are coded later are whole as well.
TEST_P(KeyOrigins, AreMissingInOldFiles) {
  const CacheShape shape = this->shape();
  RaggedCache source(shape.plain(), pool_), cache(shape, pool_);
  const std::vector<float> none(kDim);
  const std::vector<Row> rows = extend_biased(source, 70, 0, random_, none);
  cache.append_from(0, 0, source.entries(0, 0), range(0, 70));
  std::string bytes = bytes_of(cache);
  bytes.erase(6 * sizeof(std::int32_t), 2 * sizeof(std::int32_t) + 2 * kDim);
  std::istringstream in(bytes);
  RaggedCache old(shape, pool_);
  old.restore(in, 0);
  std::vector<Row> all = rows;
  for (Row& row : extend_biased(old, 40, 70, random_, none)) all.push_back(std::move(row));
  old.settle();
  for (const kernels::EntryRun& run : old.entries(0, 0).runs) EXPECT_EQ(run.origin, nullptr);
  // The codes of the file lack an origin, which would be near zero.
  EXPECT_LT(error_of_keys(old, all, none), most() + 0.2);
}

// Entries after a cut have their own types, and so have sliding windows; in older files windows have the types of a
// cut's entries.
TEST_P(KeyOrigins, OfWindowsInTypesOfTheirOwnComeFromFilesOldAndNew) {
  CacheShape shape = this->shape();
  shape.layers[0].sliding_window = 100;
  const CacheShape old_shape = shape;
  shape.later = {.key_type = EntryType::kQ8_0, .value_type = EntryType::kQ8_0};
  for (const CacheShape& written : {shape, old_shape}) {
    RaggedCache cache(written, pool_);
    std::vector<Row> rows;
    for (std::int32_t position = 0; position < 225; position += 45) {
      for (Row& row : extend_biased(cache, 45, position, random_)) rows.push_back(std::move(row));
      cache.settle();
    }
    rows.erase(rows.begin(), rows.end() - 100);
    std::stringstream stream;
    cache.write(stream, 0);
    RaggedCache restored(shape, pool_);
    restored.restore(stream, 0);
    const EntryType type = written.later ? EntryType::kQ8_0 : GetParam();
    EXPECT_EQ(restored.entries(0, 0).runs.front().key_type, type);
    EXPECT_EQ(restored.bytes(), cache.bytes());
    // The restored cache goes on as before, and so do its forks and their files.
    RaggedCache fork = restored.fork();
    for (Row& row : extend_biased(fork, 45, 225, random_)) rows.push_back(std::move(row));
    rows.erase(rows.begin(), rows.begin() + 45);
    fork.settle();
    EXPECT_EQ(fork.entries(0, 0).runs.front().key_type, type);
    EXPECT_LT(error_of_keys(fork, rows, large_bias()),
              (written.later ? most_error(EntryType::kQ8_0) : most()) * 1.5 + 0.03);
    std::stringstream again;
    fork.write(again, 0);
    RaggedCache last(shape, pool_);
    last.restore(again, 0);
    EXPECT_EQ(find(last, 0, 0).rows[20].key, find(fork, 0, 0).rows[20].key);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, KeyOrigins,
                         testing::Values(EntryType::kQ8_0, EntryType::kQ4_0, EntryType::kR4, EntryType::kR3),
                         [](const auto& test) { return std::string(entry_type_name(test.param)); });

}  // namespace
}  // namespace winnow
