// The KV cache of one sequence: every (layer, KV head) has its own length, its own entries and its own pages.
//
// PageTable decides which entries go where, PageStore has their bytes and carries that out; here the two are kept in
// step and shown as runs of entries.
//
// Not thread-safe, with two exceptions: different threads may change different heads, and after extend() they may write
// different rows of the new entries.
// Forks share pages; a write to a shared page copies it first, so forks may live on different threads.
//
// Rows lie in the pool's memory. Where that is a device's, keys and values of all views are addresses that the
// processor must not follow, entries are moved by the device, and what would convert any, codes above all, throws
// Error(kUnsupported) before anything is changed. Positions are the processor's to read in any case.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <span>
#include <vector>

#include "cache/cache_shape.h"
#include "cache/entry_memory.h"
#include "cache/page_pool.h"
#include "cache/page_rows.h"
#include "cache/page_store.h"
#include "cache/page_table.h"
#include "kernels/entries/code_feedback.h"
#include "winnow/entries.h"
#include "winnow/entry_type.h"
#include "winnow/layer_view.h"

namespace winnow {

// Rows come as they are computed and are coded, where the cache's types have codes, when their page is full (settle) or
// when a cut is made (append_from, keep): until then they stand on pages of the plain() types. Entries that follow
// coded ones on the last page turn it plain again.
//
// Keys are coded relative to their head's origin, the mean of its keys behind the first kPlainEntries when the first of
// them are coded: it never changes as long as there are codes. What is the same in all keys of a head, as biases leave
// it there (Qwen2), moves all scores alike and would take most of a code's levels. Plain pages hold keys as they are. A
// cache that was restored from a file without origins keeps its heads so.
//
// Where a cut's best entries are stored in more bits (CacheShape::high), they are whole pages of a head, behind its
// first page and before all others: pages have one format each. What follows a cut may have a format of its own
// (CacheShape::later): nothing has ranked it, and most of what comes attends to it.
class RaggedCache {
 public:
  RaggedCache(const CacheShape& shape, std::shared_ptr<PagePool> pool);
  RaggedCache(RaggedCache&& other) noexcept;
  RaggedCache& operator=(RaggedCache&& other) noexcept;
  ~RaggedCache();

  // Another sequence with the same entries. Costs no page until one of the two writes.
  RaggedCache fork() const;

  const CacheShape& shape() const { return shape_; }
  EntryMemory& memory() const { return store_.memory(); }
  // Another part of what the next cut keeps in more bits.
  void set_high_fraction(double fraction) { shape_.high->fraction = fraction; }
  std::int32_t n_entries(int layer, int kv_head) const;
  std::int64_t n_entries() const;      // over all heads
  std::int64_t n_cut_entries() const;  // over the heads of the layers that methods cut
  std::size_t bytes() const;           // of all entries
  std::size_t bytes_in_pages() const;  // whole pages, shared ones included
  // Likewise, of the pages that `other`, of the same shape, does not hold at the same place: what this one takes beside
  // a cache that it was forked from, or that was forked from it.
  std::size_t bytes_beyond(const RaggedCache& other) const;

  // The stored entries as they lie; valid until the head is next changed. O(1). In ascending position but for the pages
  // in more bits, which come early.
  kernels::HeadEntries entries(int layer, int kv_head) const;
  // In ascending position: what cuts look at. Where the order is another, runs are made in `runs`.
  kernels::HeadEntries entries_by_position(int layer, int kv_head, std::vector<kernels::EntryRun>& runs) const;

  // What a device's copy of a head's page table consists of: addresses of pages in memory(), the slot of the first
  // entry on the first page, and n_entries(). Kernels write only the rows of a fresh extend(): other pages may be
  // shared.
  std::size_t n_pages(int layer, int kv_head) const { return head(layer, kv_head).pages.size(); }
  std::int32_t first_slot(int layer, int kv_head) const { return head(layer, kv_head).n_skipped; }
  PageRows page_rows(int layer, int kv_head, std::size_t page) const;
  // The first page of a head that has been added or lies elsewhere since this was last asked, at least n_pages() if
  // there is none, as after most decoding steps. 0 of a cache that is new, a fork or moved: a copy may be kept by the
  // cache's address.
  std::size_t take_changes(int layer, int kv_head) noexcept;
  HeadRows head_rows(int layer, int kv_head) const;

  // Adds n entries of the plain() types with the positions first_position, first_position + 1, ... (above those
  // stored); their rows are undefined until written through key_row / value_row. Strong guarantee: on
  // Error(kOutOfMemory) the head is as before.
  void extend(int layer, int kv_head, std::int32_t n, std::int32_t first_position);

  // extend() of every head of every layer. On Error(kOutOfMemory) some heads are longer: truncate() them.
  void extend_all(std::int32_t n, std::int32_t first_position);

  // After a step or turn. Drops what the windows of sliding layers have left: their heads keep their last `window`
  // entries, and emptied pages go back to the pool; nothing is copied. Codes full pages that are plain; one for which
  // there is no memory stays as it is until the next time.
  void settle(int layer, int kv_head);
  void settle();

  // A row of the plain() types to write to, of an entry whose page has not been coded; an address in memory(). On a
  // page shared with a fork this copies the page, and may throw Error(kOutOfMemory); the rows of a fresh extend() are
  // never on one.
  std::byte* key_row(int layer, int kv_head, std::int32_t entry);
  std::byte* value_row(int layer, int kv_head, std::int32_t entry);

  // From here on cuts store all of a head in the types of what follows a cut (CacheShape::later), or no longer. Has no
  // effect where these are not given.
  void raise_bits(int layer, int kv_head, bool is_raised) { table_.set_raised(layer, kv_head, is_raised); }
  bool is_raised(int layer, int kv_head) const;

  // While values wait to be refitted: from here on what a cut stores has the types of shape().held(), until
  // code_values() codes the values. Nobody but who holds them may read entries meanwhile.
  void hold_values();
  void code_values(const ParallelFor& parallel_for);
  bool holds_values() const;

  // While a prompt or turn is read: how keys of a head become codes from here on, until drop_feedback(); null: number
  // by number. Forks share it.
  void set_feedback(int layer, int kv_head, std::shared_ptr<const kernels::CodeFeedback> feedback);
  void drop_feedback();

  // Replaces an entry's value [value_dim], in the type in which it is stored.
  void store_value(int layer, int kv_head, std::int32_t entry, const float* value);

  // Copies the entries `indices` (ascending) of `source` to the end of the head, converted to this cache's types where
  // they differ. The source is not a view of this head, and lies in memory(). Strong guarantee. high: those of
  // `indices` that are to be stored in more bits, whole pages of them and not among the first kPlainEntries; the head
  // is empty before.
  void append_from(int layer, int kv_head, const kernels::HeadEntries& source, std::span<const std::int32_t> indices,
                   std::span<const std::int32_t> high = {});

  // Keeps the entries `indices` (ascending, of entries_by_position) of a head of a layer without a window, compacts
  // them and returns emptied pages to the pool; `high` as above. Entries move within the head's own pages. Pages shared
  // with a fork, and those for which theirs are too small, are replaced by fresh ones. All memory is taken before
  // anything moves: strong guarantee. Takes a copy of the rows that move, not in the pool.
  void keep(int layer, int kv_head, std::span<const std::int32_t> indices, std::span<const std::int32_t> high = {});

  // Drops the last entries of every head whose position is >= position (an aborted append). Takes memory, and may throw
  // Error(kOutOfMemory), only where that parts a head's coded entries of which some are stored in more bits.
  void truncate(std::int32_t position);

  void clear();

  // A layer's entries as bytes (sizes and types, then per head: count, its origin if it has one behind the numbers 0
  // and 4, then per page: count, 1 if it is plain, 2 if it is in more bits or 3 if it followed a cut, positions, key
  // rows, value rows), in this machine's byte order, whatever the memory is. write throws Error(kIo). restore throws
  // Error(kBadFile) on anything that does not fit this cache's shape, and Error(kOutOfMemory); either leaves the cache
  // empty.
  void write(std::ostream& out, int layer) const;
  void restore(std::istream& in, int layer);

 private:
  std::size_t index(int layer, int kv_head) const { return table_.index(layer, kv_head); }
  const HeadPages& head(int layer, int kv_head) const { return table_.head(layer, kv_head); }
  IsShared is_shared() const {
    return [this](PageId page) { return store_.is_shared(page); };
  }
  // Carries a plan out on the bytes and in the table. Strong guarantee.
  //   source: what the plan was made of besides the head's own entries as they lie
  void apply(int layer, int kv_head, HeadPlan plan, const kernels::HeadEntries& source);
  void note_change(int layer, int kv_head, std::size_t page) noexcept;
  // Makes the view of a head's page anew.
  void renew_run(int layer, int kv_head, std::size_t page) noexcept;
  // extend() where it makes and copies no page; returns whether it does not.
  bool fill_last_page(int layer, int kv_head, std::int32_t n, std::int32_t first_position) noexcept;
  // Where an entry is, on a page of one's own.
  PageSlot writable_slot(int layer, int kv_head, std::int32_t entry);
  // Once a head may have no quantised keys left.
  void forget_origin(int layer, int kv_head) noexcept;
  void slide_window(int layer, int kv_head) noexcept;
  void quantise_full_pages(int layer, int kv_head);
  // Quantises the refitted values of a page, where they lie if there is no memory for a smaller page.
  void quantise_values(int layer, int kv_head, std::size_t page);
  void clear(int layer, int kv_head) noexcept;
  void restore_head(int layer, int kv_head, std::istream& in);

  CacheShape shape_;
  PageTable table_;
  PageStore store_;
  // [heads of all layers][pages] what the table and the store say, as entries() shows it: kept in step with them, so
  // that a decoding step makes nothing anew.
  std::vector<std::vector<kernels::EntryRun>> runs_;
  std::vector<std::size_t> first_changes_;  // [heads of all layers] what take_changes() returns
};

}  // namespace winnow
