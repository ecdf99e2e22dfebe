// RaggedCache::write and restore. The file's integrity (magic, checksum) is the caller's; here every number is checked
// before it is used, and memory is taken only as fast as data arrives: an absurd count ends at the end of the data.
#include <algorithm>
#include <istream>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "cache/ragged_cache.h"
#include "winnow/error.h"

namespace winnow {
namespace {

// n_layer, n_kv_head, head_dim, key_type, value_type; where layers differ, n_kv_head and head_dim are 0 and n_kv_head,
// key_dim and value_dim of every layer follow.
constexpr std::size_t kCommonNumbers = 5;

std::vector<std::int32_t> stored_shape(const CacheShape& shape) {
  const LayerShape& first = shape.layers.front();
  bool is_same = first.key_dim == first.value_dim;
  for (const LayerShape& layer : shape.layers) {
    is_same &=
        layer.n_kv_head == first.n_kv_head && layer.key_dim == first.key_dim && layer.value_dim == first.value_dim;
  }
  std::vector<std::int32_t> numbers = {shape.n_layer(), is_same ? first.n_kv_head : 0, is_same ? first.key_dim : 0,
                                       static_cast<std::int32_t>(shape.key_type),
                                       static_cast<std::int32_t>(shape.value_type)};
  if (is_same) return numbers;
  for (const LayerShape& layer : shape.layers) {
    numbers.insert(numbers.end(), {layer.n_kv_head, layer.key_dim, layer.value_dim});
  }
  return numbers;
}

std::string type_name(std::int32_t type) {
  const bool is_known = type >= 0 && type <= static_cast<std::int32_t>(EntryType::kR3);
  return is_known ? std::string(entry_type_name(static_cast<EntryType>(type))) : "type " + std::to_string(type);
}

std::string describe(std::span<const std::int32_t> shape) {
  const std::string heads =
      shape[1] == 0 ? "of different heads" : std::to_string(shape[1]) + " KV heads of " + std::to_string(shape[2]);
  return std::to_string(shape[0]) + " layers, " + heads + ", keys " + type_name(shape[3]) + ", values " +
         type_name(shape[4]);
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
  const std::vector<std::int32_t> shape = stored_shape(shape_);
  write_bytes(out, shape.data(), shape.size() * sizeof(std::int32_t));
  for (int l = 0; l < shape_.n_layer(); ++l) {
    for (int kv_head = 0; kv_head < shape_.layer(l).n_kv_head; ++kv_head) {
      const Head& h = head(l, kv_head);
      const auto write_rows = [&](const std::byte* rows, std::int32_t n, std::size_t row) {
        write_bytes(out, rows, static_cast<std::size_t>(n) * row);
      };
      write_bytes(out, &h.n_entries, sizeof(h.n_entries));
      for (const auto& run : h.runs) {
        write_bytes(out, run.positions, static_cast<std::size_t>(run.n_entries) * sizeof(std::int32_t));
      }
      for (const auto& run : h.runs) write_rows(run.keys, run.n_entries, layout(l).key_bytes);
      for (const auto& run : h.runs) write_rows(run.values, run.n_entries, layout(l).value_bytes);
    }
  }
  if (!out) throw Error(ErrorCode::kIo, "the session could not be written: check the free space of the disk");
}

void RaggedCache::restore(std::istream& in) {
  clear();
  const std::vector<std::int32_t> expected = stored_shape(shape_);
  std::vector<std::int32_t> found(kCommonNumbers);
  read_bytes(in, found.data(), found.size() * sizeof(std::int32_t));
  const bool is_common = std::equal(found.begin(), found.end(), expected.begin());
  if (is_common) {
    found.resize(expected.size());
    read_bytes(in, found.data() + kCommonNumbers, (found.size() - kCommonNumbers) * sizeof(std::int32_t));
  }
  if (found != expected) {
    fail("has " + describe(found) + ", but this session has " + describe(expected) +
         ": load it with the model and the cache types that it was saved with");
  }
  try {
    for (int l = 0; l < shape_.n_layer(); ++l) {
      for (int h = 0; h < shape_.layer(l).n_kv_head; ++h) restore_head(layout(l), head(l, h), in);
    }
  } catch (...) {
    clear();
    throw;
  }
}

void RaggedCache::restore_head(const Layout& layout, Head& h, std::istream& in) {
  std::int32_t count = 0;
  read_bytes(in, &count, sizeof(count));
  if (count < 0) fail("has a head of " + std::to_string(count) + " entries: the file is corrupt");

  // A page is acquired when its positions have been read and its keys come.
  const std::vector<std::int32_t> positions = read_positions(in, count);
  while (h.n_entries < count) {
    const std::int32_t first = h.n_entries;
    const std::int32_t first_slot = first > 0 || layout.window == 0 ? 0 : positions[0] % kPageEntries;
    const std::int32_t n = std::min(kPageEntries - first_slot, count - first);
    grow(layout, h, n, positions[static_cast<std::size_t>(first)]);
    const Slot target = slot_of(layout, h, first);
    std::copy_n(positions.begin() + first, n, target.position);
    read_bytes(in, target.key, static_cast<std::size_t>(n) * layout.key_bytes);
  }
  for (std::size_t page = 0; page < h.pages.size(); ++page) {
    const auto n = static_cast<std::size_t>(h.runs[page].n_entries);
    read_bytes(in, slot(layout, h.pages[page], page == 0 ? h.n_skipped : 0).value, n * layout.value_bytes);
  }
}

}  // namespace winnow
