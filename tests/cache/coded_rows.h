// Rows of random numbers for caches that code them, and checks of the rows that are read back.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "cache/cache_test_support.h"
#include "cache/entry_copies.h"
#include "kernels/entries/rows.h"
#include "normal_numbers.h"

namespace winnow {

struct Row {
  std::int32_t position;
  std::vector<float> key, value;
};

inline std::vector<float> normal_row(std::mt19937& random, int n) {
  return test::normal_numbers(static_cast<std::size_t>(n), random);
}

inline void store(RaggedCache& cache, int layer, int head, std::int32_t entry, const Row& row) {
  const CacheShape plain = cache.shape().plain();
  const auto write = [&](EntryType type, const std::vector<float>& numbers, std::byte* to) {
    const auto n = static_cast<int>(numbers.size());
    std::vector<std::byte> stored(row_bytes(type, n));
    kernels::store_row(type, numbers.data(), stored.data(), n);
    cache.memory().write(to, stored.data(), stored.size());
  };
  write(plain.key_type, row.key, cache.key_row(layer, head, entry));
  write(plain.value_type, row.value, cache.value_row(layer, head, entry));
}

inline std::vector<Row> extend(RaggedCache& cache, int layer, int head, std::int32_t n, std::int32_t first_position,
                               std::mt19937& random) {
  const LayerShape& sizes = cache.shape().layer(layer);
  const std::int32_t n_before = cache.n_entries(layer, head);
  cache.extend(layer, head, n, first_position);
  std::vector<Row> rows;
  for (std::int32_t i = 0; i < n; ++i) {
    rows.push_back({first_position + i, normal_row(random, sizes.key_dim), normal_row(random, sizes.value_dim)});
    store(cache, layer, head, n_before + i, rows.back());
  }
  return rows;
}

// The entries of a head in ascending position, and how they are stored.
struct Found {
  std::vector<Row> rows;
  std::vector<bool> is_plain;
  std::vector<EntryType> types;  // of the keys
};

inline Found find(const RaggedCache& cache, int layer, int head) {
  const CacheShape plain = cache.shape().plain();
  const LayerShape& sizes = cache.shape().layer(layer);
  const kernels::AttentionShape shape{.n_group = 1,
                                      .key_dim = sizes.key_dim,
                                      .value_dim = sizes.value_dim,
                                      .key_type = cache.shape().key_type,
                                      .value_type = cache.shape().value_type,
                                      .spec = {.scale = 1}};
  Found found;
  std::vector<kernels::EntryRun> runs;
  const EntryCopies copies(cache.shared_memory(), cache.entries_by_position(layer, head, runs), sizes.key_dim,
                           sizes.value_dim);
  for (const kernels::EntryRun& run : copies.entries().runs) {
    for (std::int32_t i = 0; i < run.n_entries; ++i) {
      Row row{run.positions[i], std::vector<float>(static_cast<std::size_t>(sizes.key_dim)),
              std::vector<float>(static_cast<std::size_t>(sizes.value_dim))};
      kernels::load_entry(shape, run, kernels::RowKind::kKey, i, row.key.data());
      kernels::load_entry(shape, run, kernels::RowKind::kValue, i, row.value.data());
      found.rows.push_back(std::move(row));
      found.is_plain.push_back(run.key_type == plain.key_type && run.value_type == plain.value_type);
      found.types.push_back(run.key_type);
    }
  }
  return found;
}

// Returns |a - b| / |b|.
inline double relative_distance(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
    size += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::sqrt(difference / size);
}

inline double most_error(EntryType type) {
  switch (type) {
    case EntryType::kF32:
    case EntryType::kF16:
    case EntryType::kBF16:
      return 1e-3;
    case EntryType::kQ8_0:
      return 0.01;
    case EntryType::kQ4_0:
    case EntryType::kR4:
      return 0.2;
    case EntryType::kR3:
      return 0.35;
  }
  return 0;
}

inline void expect_rows(const RaggedCache& cache, int layer, int head, const std::vector<Row>& expected,
                        const std::string& what) {
  const Found found = find(cache, layer, head);
  ASSERT_EQ(found.rows.size(), expected.size()) << what;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(found.rows[i].position, expected[i].position) << what << ", entry " << i;
    ASSERT_LT(relative_distance(found.rows[i].key, expected[i].key), most_error(cache.shape().key_type)) << what << i;
    ASSERT_LT(relative_distance(found.rows[i].value, expected[i].value), most_error(cache.shape().value_type))
        << what << i;
  }
}

// A cache of two layers with two heads, and the rows that it should hold.
struct Sequence {
  RaggedCache cache;
  std::vector<std::vector<Row>> rows = std::vector<std::vector<Row>>(4);  // [heads]
  std::int32_t next_position = 0;

  Sequence fork() const { return {cache.fork(), rows, next_position}; }

  void extend_head(int head, std::int32_t n, std::mt19937& random) {
    for (Row& row : extend(cache, head / 2, head % 2, n, next_position, random)) {
      rows[static_cast<std::size_t>(head)].push_back(std::move(row));
    }
    next_position += n % 4 == 2 ? n + 50'000 : n;  // positions that lie far apart share pages, too
  }

  // Drops about one of `one_in` rows of a head. `high` chooses which of the kept rows are stored in more bits.
  using High = std::function<std::vector<std::int32_t>(const std::vector<std::int32_t>&)>;
  void keep_some(int head, unsigned one_in, std::mt19937& random, const High& high = {}) {
    std::vector<Row>& of_head = rows[static_cast<std::size_t>(head)];
    std::vector<std::int32_t> chosen;
    std::vector<Row> kept;
    for (std::size_t i = 0; i < of_head.size(); ++i) {
      if (random() % one_in == 0) continue;
      chosen.push_back(static_cast<std::int32_t>(i));
      kept.push_back(of_head[i]);
    }
    cache.keep(head / 2, head % 2, chosen, high ? high(chosen) : std::vector<std::int32_t>{});
    of_head = kept;
  }

  // Writes the cache to a file, restores it and expects the same bytes again.
  void write_and_restore(const std::shared_ptr<PagePool>& pool) {
    std::stringstream stream;
    write_layers(cache, stream);
    RaggedCache restored(cache.shape(), pool);
    restore_layers(restored, stream);
    std::ostringstream again;
    write_layers(restored, again);
    ASSERT_EQ(again.str(), stream.str());
    ASSERT_EQ(restored.bytes(), cache.bytes());
    cache = std::move(restored);
  }
};

}  // namespace winnow
