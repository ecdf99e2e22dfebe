// Every allocation of a change to a cache fails in turn: a change that throws leaves the cache as it was, and the next
// try succeeds.
#include "failing_allocations.h"

#include <functional>
#include <new>
#include <numeric>

#include "cache/coded_rows.h"
#include "cache/guarded_memory.h"

namespace winnow {
namespace {

struct Case {
  const char* name;
  CacheShape shape;
  std::int32_t far = 0;  // gap between the two halves of the positions
  TestMemory memory = TestMemory::kHost;
};

std::vector<Case> cases() {
  CacheShape coded = even_shape(1, 1, 64, EntryType::kR4, EntryType::kR4);
  CacheShape high = coded;
  high.high = {.key_type = EntryType::kQ8_0, .value_type = EntryType::kQ8_0, .fraction = 0.3};
  high.later = {.key_type = EntryType::kQ8_0, .value_type = EntryType::kQ8_0};
  return {{"f16", even_shape(1, 1, 64)},
          {"f16, positions far apart", even_shape(1, 1, 64), 100'000},
          {"f16, guarded", even_shape(1, 1, 64), 0, TestMemory::kGuarded},
          {"f16, guarded, positions far apart", even_shape(1, 1, 64), 100'000, TestMemory::kGuarded},
          {"r4", coded},
          {"r4, positions far apart", coded, 100'000},
          {"r4 and q8_0", high}};
}

constexpr std::int32_t kEntries = 150;

void fill(RaggedCache& cache, const Case& c, std::mt19937& random) {
  extend(cache, 0, 0, kEntries / 2, 0, random);
  extend(cache, 0, 0, kEntries - kEntries / 2, kEntries / 2 + c.far, random);
}

// Expects that a change that throws leaves the cache as it was, and that the next try has the same result as without a
// failure. A change that goes on without the memory reaches that result when it is made again.
void expect_all_or_nothing(const std::function<RaggedCache()>& before,
                           const std::function<void(RaggedCache&)>& change) {
  RaggedCache whole = before();
  const std::string old_bytes = bytes_of(whole);
  change(whole);
  const std::string expected = bytes_of(whole);
  ASSERT_TRUE(expected != old_bytes) << "a change that does nothing";
  for (std::int64_t n = 1;; ++n) {
    RaggedCache cache = before();
    bool has_thrown = false;
    const test::FailingAllocation one(n);
    try {
      change(cache);
    } catch (const std::bad_alloc&) {
      has_thrown = true;
    }
    if (!one.has_happened()) break;
    const std::string bytes = bytes_of(cache);
    if (has_thrown) {
      ASSERT_TRUE(bytes == old_bytes) << "allocation " << n;
    }
    if (bytes != expected) change(cache);
    ASSERT_TRUE(bytes_of(cache) == expected) << "the try after allocation " << n;
  }
}

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class FailingAllocations : public testing::TestWithParam<Case> {
 protected:
  std::shared_ptr<PagePool> make_pool() const { return PagePool::create(0, memory_); }
  // Returns a function that makes a cache of kEntries entries and calls `prepare` on it.
  std::function<RaggedCache()> made(const std::function<void(RaggedCache&)>& prepare = {}) const {
    return [this, prepare] {
      std::mt19937 random(7);
      RaggedCache cache(GetParam().shape, make_pool());
      fill(cache, GetParam(), random);
      if (prepare) prepare(cache);
      return cache;
    };
  }
  std::vector<std::int32_t> high_of(const std::vector<std::int32_t>& kept) const {
    if (!GetParam().shape.high) return {};
    return {kept.begin() + kPlainEntries, kept.begin() + kPlainEntries + kPageEntries};
  }

 private:
  std::shared_ptr<EntryMemory> memory_ = make_memory(GetParam().memory);
};

TEST_P(FailingAllocations, Extend) {
  const std::int32_t next = kEntries + GetParam().far + 70'000;
  const CacheShape plain = GetParam().shape.plain();
  const TestEntry zeros = {next, std::vector<std::byte>(plain.key_bytes(0)),
                           std::vector<std::byte>(plain.value_bytes(0))};
  expect_all_or_nothing(made(), [&](RaggedCache& cache) {
    cache.extend(0, 0, 40, next);
    for (std::int32_t i = kEntries; i < kEntries + 40; ++i) write_entry(cache, 0, 0, i, zeros);
  });
}

TEST_P(FailingAllocations, Keep) {
  const std::vector<std::int32_t> kept = every(2, kEntries - 3);
  const auto keep = [&](RaggedCache& cache) { cache.keep(0, 0, kept, high_of(kept)); };
  expect_all_or_nothing(made(), keep);
  const auto settled = [](RaggedCache& cache) { cache.settle(); };
  expect_all_or_nothing(made(settled), keep);
  const auto cut = [&](RaggedCache& cache) { cache.keep(0, 0, every(1, kEntries - 3), {}); };
  expect_all_or_nothing(made(cut), keep);
}

TEST_P(FailingAllocations, KeepOfPagesThatAForkShares) {
  const std::vector<std::int32_t> kept = every(3, kEntries);
  std::vector<RaggedCache> forks;
  const auto shared = [&](RaggedCache& cache) { forks.push_back(cache.fork()); };
  expect_all_or_nothing(made(shared), [&](RaggedCache& cache) { cache.keep(0, 0, kept, high_of(kept)); });
  for (const RaggedCache& fork : forks) ASSERT_TRUE(bytes_of(fork) == bytes_of(forks.front()));
}

TEST_P(FailingAllocations, AppendFrom) {
  const RaggedCache source = [&] {
    std::mt19937 random(7);
    RaggedCache plain(GetParam().shape.plain(), make_pool());
    fill(plain, GetParam(), random);
    return plain;
  }();
  const auto empty = [&] { return RaggedCache(GetParam().shape, make_pool()); };
  const std::vector<std::int32_t> kept = every(2, kEntries);
  expect_all_or_nothing(
      empty, [&](RaggedCache& cache) { cache.append_from(0, 0, source.entries(0, 0), kept, high_of(kept)); });
}

// Keys that another head stored relative to its origin need temporary memory on their way to this head.
TEST_P(FailingAllocations, AppendFromAnotherHead) {
  const RaggedCache source = [&] {
    std::mt19937 random(7);
    RaggedCache stored(GetParam().shape, make_pool());
    fill(stored, GetParam(), random);
    stored.settle();
    return stored;
  }();
  const auto empty = [&] { return RaggedCache(GetParam().shape, make_pool()); };
  const std::vector<std::int32_t> kept = every(2, kEntries);
  expect_all_or_nothing(
      empty, [&](RaggedCache& cache) { cache.append_from(0, 0, source.entries(0, 0), kept, high_of(kept)); });
}

TEST_P(FailingAllocations, Settle) {
  if (!GetParam().shape.has_codes()) GTEST_SKIP() << "nothing is coded";
  expect_all_or_nothing(made(), [](RaggedCache& cache) { cache.settle(); });
}

TEST_P(FailingAllocations, CodeValues) {
  if (!GetParam().shape.has_codes()) GTEST_SKIP() << "nothing is coded";
  const std::vector<std::int32_t> kept = every(2, kEntries);
  const auto held = [&](RaggedCache& cache) {
    cache.hold_values();
    cache.keep(0, 0, kept, high_of(kept));
  };
  const ParallelFor in_turn = [](int n, const std::function<void(int)>& body) {
    for (int i = 0; i < n; ++i) body(i);
  };
  expect_all_or_nothing(made(held), [&](RaggedCache& cache) { cache.code_values(in_turn); });
}

TEST_P(FailingAllocations, Truncate) {
  const auto settled = [](RaggedCache& cache) { cache.settle(); };
  expect_all_or_nothing(made(settled), [](RaggedCache& cache) { cache.truncate(33); });
}

std::string case_name(const testing::TestParamInfo<Case>& c) {
  std::string name;
  for (const char letter : std::string(c.param.name)) name += std::isalnum(letter) ? letter : '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(Caches, FailingAllocations, testing::ValuesIn(cases()), case_name);

}  // namespace
}  // namespace winnow
