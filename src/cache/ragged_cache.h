// The KV cache of one sequence: every (layer, KV head) has its own length, its own entries and its own pages.
//
// Not thread-safe, with two exceptions: different threads may change different heads, and after extend() they may write
// different rows of the new entries.
// Forks share pages; a write to a shared page copies it first, so forks may live on different threads.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <span>
#include <vector>

#include "cache/page_pool.h"
#include "kernels/entries.h"
#include "winnow/entry_type.h"

namespace winnow {

// Entries per page. Small enough that a ragged cache of 90 heads wastes little (half a page a head), large enough that
// a run keeps the attention kernels busy.
inline constexpr std::int32_t kPageEntries = 32;

struct CacheShape {
  int n_layer;
  int n_kv_head;
  int head_dim;
  EntryType key_type = EntryType::kF16;
  EntryType value_type = EntryType::kF16;

  // Keys, value and position of one token in one (layer, KV head).
  std::size_t entry_bytes() const;
  // kPageEntries keys, then as many values, then as many positions.
  std::size_t page_bytes() const;
  bool operator==(const CacheShape&) const = default;
};

class RaggedCache {
 public:
  RaggedCache(const CacheShape& shape, std::shared_ptr<PagePool> pool);
  RaggedCache(RaggedCache&&) noexcept = default;
  RaggedCache& operator=(RaggedCache&&) noexcept = default;

  // Another sequence with the same entries. Costs no page until one of the two writes.
  RaggedCache fork() const;

  const CacheShape& shape() const { return shape_; }
  std::int32_t n_entries(int layer, int kv_head) const;
  std::int64_t n_entries() const;      // over all heads
  std::size_t bytes_in_pages() const;  // whole pages, shared ones included

  // The stored entries in ascending position; valid until the head is next changed. O(1).
  kernels::HeadEntries entries(int layer, int kv_head) const;

  // Adds n entries with the positions first_position, first_position + 1, ... (above those stored); their rows are
  // undefined until written through key_row / value_row. Strong guarantee: on Error(kOutOfMemory) the head is as
  // before.
  void extend(int layer, int kv_head, std::int32_t n, std::int32_t first_position);

  // A row to write to. On a page shared with a fork this copies the page, and may throw Error(kOutOfMemory); the rows
  // of a fresh extend() are never on one.
  std::byte* key_row(int layer, int kv_head, std::int32_t entry);
  std::byte* value_row(int layer, int kv_head, std::int32_t entry);

  // Copies the entries `indices` (ascending) of `source`, stored with this cache's types, to the end of the head. The
  // source is not a view of this head. Strong guarantee.
  void append_from(int layer, int kv_head, const kernels::HeadEntries& source, std::span<const std::int32_t> indices);

  // Keeps the entries `indices` (ascending), compacts them and returns emptied pages to the pool. Entries move within
  // the head's own pages; only pages shared with a fork are replaced by fresh ones, before anything moves: strong
  // guarantee.
  void keep(int layer, int kv_head, std::span<const std::int32_t> indices);

  // Drops the last entries of every head whose position is >= position (an aborted append).
  void truncate(std::int32_t position);

  void clear();

  // The entries as bytes (shape, then per head: count, positions, key rows, value rows), in this machine's byte order.
  // write throws Error(kIo). restore throws Error(kBadFile) on anything that does not fit this cache's shape, and
  // Error(kOutOfMemory); either leaves the cache empty.
  void write(std::ostream& out) const;
  void restore(std::istream& in);

 private:
  // Entry e is in slot e % kPageEntries of page e / kPageEntries: all pages but the last are full.
  struct Head {
    std::vector<PageRef> pages;
    std::vector<kernels::EntryRun> runs;  // one per page, kept in step with it
    std::int32_t n_entries = 0;
  };
  // The parts of a page that belong to one entry.
  struct Slot {
    std::byte* key;
    std::byte* value;
    std::int32_t* position;
  };

  Head& head(int layer, int kv_head);
  const Head& head(int layer, int kv_head) const;
  Slot slot(const PageRef& page, std::int32_t index) const;

  // The first n_entries entries of a page.
  kernels::EntryRun run_of(const PageRef& page, std::int32_t n_entries) const;
  void copy_entry(const kernels::EntryRun& source, std::int32_t index, const Slot& target) const;
  void make_writable(Head& head, std::size_t page);
  // Adds n entries without contents. Strong guarantee.
  void grow(Head& head, std::int32_t n);
  // Drops all entries but the first n.
  void shrink(Head& head, std::int32_t n);
  void restore_head(Head& head, std::istream& in);

  CacheShape shape_;
  std::size_t key_bytes_;    // of a row
  std::size_t value_bytes_;  // of a row
  std::shared_ptr<PagePool> pool_;
  std::vector<Head> heads_;  // [n_layer][n_kv_head]
};

}  // namespace winnow
