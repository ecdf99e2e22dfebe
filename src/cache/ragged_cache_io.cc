// RaggedCache::write and restore. The file's integrity (magic, checksum) is the caller's; here every number is checked
// before it is used, and memory is taken only as fast as data arrives: an absurd count ends at the end of the data.
#include <algorithm>
#include <array>
#include <istream>
#include <ostream>
#include <string>
#include <vector>

#include "cache/ragged_cache.h"
#include "winnow/error.h"

namespace winnow {
namespace {

// n_layer, n_kv_head, head_dim, key_type, value_type
using StoredShape = std::array<std::int32_t, 5>;

StoredShape stored_shape(const CacheShape& shape) {
  return {shape.n_layer, shape.n_kv_head, shape.head_dim, static_cast<std::int32_t>(shape.key_type),
          static_cast<std::int32_t>(shape.value_type)};
}

std::string type_name(std::int32_t type) {
  const bool is_known = type >= 0 && type <= static_cast<std::int32_t>(EntryType::kR3);
  return is_known ? std::string(entry_type_name(static_cast<EntryType>(type))) : "type " + std::to_string(type);
}

std::string describe(const StoredShape& shape) {
  return std::to_string(shape[0]) + " layers, " + std::to_string(shape[1]) + " KV heads of " +
         std::to_string(shape[2]) + ", keys " + type_name(shape[3]) + ", values " + type_name(shape[4]);
}

[[noreturn]] void fail(const std::string& what) { throw Error(ErrorCode::kBadFile, "the stored cache " + what); }

void write_bytes(std::ostream& out, const void* data, std::size_t bytes) {
  out.write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes));
}

void read_bytes(std::istream& in, void* data, std::size_t bytes) {
  in.read(static_cast<char*>(data), static_cast<std::streamsize>(bytes));
  if (!in) fail("ends too early: the file is truncated or corrupt, save the session again");
}

// Reads `count` positions. The vector grows with what was read, whatever the count says.
std::vector<std::int32_t> read_positions(std::istream& in, std::int32_t count) {
  constexpr std::size_t kChunk = 1024;
  std::vector<std::int32_t> positions;
  const auto n = static_cast<std::size_t>(count);
  while (positions.size() < n) {
    const std::size_t first = positions.size();
    positions.resize(std::min(n, first + kChunk));
    read_bytes(in, positions.data() + first, (positions.size() - first) * sizeof(std::int32_t));
    for (std::size_t i = first; i < positions.size(); ++i) {
      const bool is_in_order = i == 0 ? positions[i] >= 0 : positions[i] > positions[i - 1];
      if (!is_in_order) fail("has positions out of order: the file is corrupt, save the session again");
    }
  }
  return positions;
}

}  // namespace

void RaggedCache::write(std::ostream& out) const {
  const StoredShape shape = stored_shape(shape_);
  write_bytes(out, shape.data(), sizeof(shape));
  for (const Head& h : heads_) {
    write_bytes(out, &h.n_entries, sizeof(h.n_entries));
    for (const auto& run : h.runs) {
      write_bytes(out, run.positions, static_cast<std::size_t>(run.n_entries) * sizeof(std::int32_t));
    }
    for (const auto& run : h.runs) write_bytes(out, run.keys, static_cast<std::size_t>(run.n_entries) * key_bytes_);
    for (const auto& run : h.runs) write_bytes(out, run.values, static_cast<std::size_t>(run.n_entries) * value_bytes_);
  }
  if (!out) throw Error(ErrorCode::kIo, "the session could not be written: check the free space of the disk");
}

void RaggedCache::restore(std::istream& in) {
  clear();
  StoredShape found;
  read_bytes(in, found.data(), sizeof(found));
  if (found != stored_shape(shape_)) {
    fail("has " + describe(found) + ", but this session has " + describe(stored_shape(shape_)) +
         ": load it with the model and the cache types that it was saved with");
  }
  try {
    for (Head& h : heads_) restore_head(h, in);
  } catch (...) {
    clear();
    throw;
  }
}

void RaggedCache::restore_head(Head& h, std::istream& in) {
  std::int32_t count = 0;
  read_bytes(in, &count, sizeof(count));
  if (count < 0) fail("has a head of " + std::to_string(count) + " entries: the file is corrupt");

  // A page is acquired when its positions have been read and its keys come.
  const std::vector<std::int32_t> positions = read_positions(in, count);
  while (h.n_entries < count) {
    const std::int32_t first = h.n_entries;
    const std::int32_t n = std::min(kPageEntries, count - first);
    grow(h, n);
    const Slot target = slot(h.pages.back(), 0);
    std::copy_n(positions.begin() + first, n, target.position);
    read_bytes(in, target.key, static_cast<std::size_t>(n) * key_bytes_);
  }
  for (std::size_t page = 0; page < h.pages.size(); ++page) {
    const auto n = static_cast<std::size_t>(h.runs[page].n_entries);
    read_bytes(in, slot(h.pages[page], 0).value, n * value_bytes_);
  }
}

}  // namespace winnow
