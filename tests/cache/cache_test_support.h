// Helpers of the cache's tests: entries with recognisable contents, and the process's resident size.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <istream>
#include <numeric>
#include <ostream>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "cache/host_memory.h"
#include "cache/ragged_cache.h"

namespace winnow {

inline constexpr std::int64_t kMiB = 1 << 20;

// A cache entry as plain data.
struct TestEntry {
  std::int32_t position;
  std::vector<std::byte> key;
  std::vector<std::byte> value;
  bool operator==(const TestEntry&) const = default;
};

// Returns a shape whose layers are all the same.
inline CacheShape even_shape(int n_layer, int n_kv_head, int head_dim, EntryType key_type = EntryType::kF16,
                             EntryType value_type = EntryType::kF16) {
  const LayerShape layer{.n_kv_head = n_kv_head, .key_dim = head_dim, .value_dim = head_dim};
  return {.layers = std::vector<LayerShape>(static_cast<std::size_t>(n_layer), layer),
          .key_type = key_type,
          .value_type = value_type};
}

// Returns an entry of the first layer's sizes whose bytes follow from the position and a seed (which distinguishes
// sequences).
inline TestEntry make_entry(const CacheShape& shape, std::int32_t position, std::uint32_t seed) {
  TestEntry entry{.position = position,
                  .key = std::vector<std::byte>(shape.key_bytes(0)),
                  .value = std::vector<std::byte>(shape.value_bytes(0))};
  std::uint32_t state = static_cast<std::uint32_t>(position) * 2654435761U + seed * 40503U + 1;
  const auto next = [&state] { return static_cast<std::byte>((state = state * 1664525U + 1013904223U) >> 24); };
  for (std::byte& b : entry.key) b = next();
  for (std::byte& b : entry.value) b = next();
  return entry;
}

inline void write_entry(RaggedCache& cache, int layer, int kv_head, std::int32_t index, const TestEntry& entry) {
  cache.memory().write(cache.key_row(layer, kv_head, index), entry.key.data(), entry.key.size());
  cache.memory().write(cache.value_row(layer, kv_head, index), entry.value.data(), entry.value.size());
}

// Extends the head by n entries and writes them.
inline void extend_and_write(RaggedCache& cache, int layer, int kv_head, std::int32_t n, std::int32_t first_position,
                             std::uint32_t seed) {
  const std::int32_t n_before = cache.n_entries(layer, kv_head);
  cache.extend(layer, kv_head, n, first_position);
  for (std::int32_t i = 0; i < n; ++i) {
    write_entry(cache, layer, kv_head, n_before + i, make_entry(cache.shape(), first_position + i, seed));
  }
}

inline std::vector<TestEntry> read_entries(const CacheShape& shape, const kernels::HeadEntries& entries,
                                           EntryMemory& memory = *HostMemory::shared()) {
  const std::size_t key_bytes = shape.key_bytes(0);
  const std::size_t value_bytes = shape.value_bytes(0);
  std::vector<TestEntry> result;
  for (const kernels::EntryRun& run : entries.runs) {
    for (std::int32_t i = 0; i < run.n_entries; ++i) {
      TestEntry entry = {run.positions[i], std::vector<std::byte>(key_bytes), std::vector<std::byte>(value_bytes)};
      memory.read(entry.key.data(), run.keys + static_cast<std::size_t>(i) * key_bytes, key_bytes);
      memory.read(entry.value.data(), run.values + static_cast<std::size_t>(i) * value_bytes, value_bytes);
      result.push_back(std::move(entry));
    }
  }
  return result;
}

// Writes all layers, one after the other.
inline void write_layers(const RaggedCache& cache, std::ostream& out) {
  for (int l = 0; l < cache.shape().n_layer(); ++l) cache.write(out, l);
}

// Returns what a file of the cache has.
inline std::string bytes_of(const RaggedCache& cache) {
  std::ostringstream out;
  write_layers(cache, out);
  return out.str();
}

inline void restore_layers(RaggedCache& cache, std::istream& in) {
  for (int l = 0; l < cache.shape().n_layer(); ++l) cache.restore(in, l);
}

inline std::vector<TestEntry> read_head(const RaggedCache& cache, int layer, int kv_head) {
  return read_entries(cache.shape(), cache.entries(layer, kv_head), cache.memory());
}

// Returns first, ..., end - 1.
inline std::vector<std::int32_t> range(std::int32_t first, std::int32_t end) {
  std::vector<std::int32_t> positions(static_cast<std::size_t>(end - first));
  std::iota(positions.begin(), positions.end(), first);
  return positions;
}

// Returns every step-th index below n, from 0.
inline std::vector<std::int32_t> every(std::int32_t step, std::int32_t n) {
  std::vector<std::int32_t> indices;
  for (std::int32_t i = 0; i < n; i += step) indices.push_back(i);
  return indices;
}

inline std::vector<std::int32_t> positions_of(const std::vector<TestEntry>& entries) {
  std::vector<std::int32_t> positions;
  for (const TestEntry& entry : entries) positions.push_back(entry.position);
  return positions;
}

// ThreadSanitizer's shadow memory grows with the memory that the program touches and hides memory that is freed.
#ifdef __SANITIZE_THREAD__
inline constexpr bool kMeasuresResidentSize = false;
#else
inline constexpr bool kMeasuresResidentSize = true;
#endif

// Returns the process's resident set in bytes.
inline std::int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::int64_t total = 0;
  std::int64_t resident = 0;
  statm >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

// Returns the largest resident set that the process has had, in bytes.
inline std::int64_t peak_resident_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return std::int64_t{usage.ru_maxrss} * 1024;
}

}  // namespace winnow
