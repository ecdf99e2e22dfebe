// The KV cache of one sequence: every (layer, KV head) has its own length, its own entries and its own pages.
//
// PageTable decides where entries go, and PageStore holds their bytes and moves them; RaggedCache keeps the two in step
// and shows them as runs of entries.
//
// Not thread-safe, with two exceptions: different threads may change different heads, and after extend() they may write
// different rows of the new entries.
// Forks share pages; a write to a shared page copies it first, so forks may live on different threads.
//
// Rows lie in the pool's memory. If that is a device's, keys and values of all views are addresses that the processor
// must not follow (EntryCopies copies them), and the device moves the entries; only rows that are converted pass
// through the processor's memory. The processor may read positions and origins in any case.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <optional>
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

// Rows arrive as they are computed. If the cache's types are quantised, a row is quantised when its page is full
// (settle) or when a cut is made (append_from, keep); until then it stays on a page of the plain() types. Entries that
// follow quantised ones on the last page turn that page plain again.
//
// Keys are quantised relative to their head's origin: the mean of its keys after the first kPlainEntries, taken when
// the first of them are quantised. It never changes as long as there are quantised keys. A part that all keys of a head
// have in common, as biases leave it there (Qwen2), shifts all scores alike and would take most of a code's levels.
// Plain pages hold keys as they are. Heads that were restored from a file without origins stay without.
//
// If a cut's best entries are stored in more bits (CacheShape::high), they fill whole pages of a head, after its first
// page and before all others: a page has one format. Entries that follow a cut may have a format of their own
// (CacheShape::later): they have no scores yet, and most new tokens attend to them.
class RaggedCache {
 public:
  RaggedCache(const CacheShape& shape, std::shared_ptr<PagePool> pool);
  RaggedCache(RaggedCache&& other) noexcept;
  RaggedCache& operator=(RaggedCache&& other) noexcept;
  ~RaggedCache();

  // Returns another sequence with the same entries. It takes no page until one of the two writes.
  RaggedCache fork() const;

  const CacheShape& shape() const { return shape_; }
  EntryMemory& memory() const { return store_.memory(); }
  const std::shared_ptr<EntryMemory>& shared_memory() const { return store_.pool()->memory(); }
  // Sets the fraction of its entries that the next cut keeps in more bits.
  void set_high_fraction(double fraction) { shape_.high->fraction = fraction; }
  std::int32_t n_entries(int layer, int kv_head) const;
  std::int64_t n_entries() const;      // over all heads
  std::int64_t n_cut_entries() const;  // over the heads of the layers that methods cut
  std::size_t bytes() const;           // of all entries
  std::size_t bytes_in_pages() const;  // whole pages, shared ones included
  // Returns the bytes of the pages that `other`, of the same shape, does not hold at the same place: what this cache
  // takes in addition to one that it was forked from, or that was forked from it.
  std::size_t bytes_beyond(const RaggedCache& other) const;

  // Returns the entries as they are stored; valid until the head is next changed. O(1). Positions ascend except for the
  // pages in more bits, which come early.
  kernels::HeadEntries entries(int layer, int kv_head) const;
  // Returns the entries in ascending position, as cuts see them. If they are stored in another order, their runs are
  // made in `runs`.
  kernels::HeadEntries entries_by_position(int layer, int kv_head, std::vector<kernels::EntryRun>& runs) const;

  // The contents of a device's copy of a head's page table: addresses of pages in memory(), the slot of the first entry
  // on the first page, and n_entries(). Kernels write only the rows of a fresh extend(): other pages may be shared.
  std::size_t n_pages(int layer, int kv_head) const { return head(layer, kv_head).pages.size(); }
  std::int32_t first_slot(int layer, int kv_head) const { return head(layer, kv_head).n_skipped; }
  // Returns the origin of a head's keys that are codes; it stays the same object as long as it does not change.
  const PageStore::Origin& origin(int layer, int kv_head) const { return store_.origin(index(layer, kv_head)); }
  PageRows page_rows(int layer, int kv_head, std::size_t page) const;
  // Returns the first page of a head that was added or moved since the last call, or at least n_pages() if there is
  // none, as after most decoding steps. Returns 0 for a cache that is new, a fork or moved, so a copy may be kept by
  // the cache's address.
  std::size_t take_changes(int layer, int kv_head) noexcept;
  HeadRows head_rows(int layer, int kv_head) const;

  // Adds n entries of the plain() types with the positions first_position, first_position + 1, ... (above those
  // stored); their rows are undefined until written through key_row / value_row. Strong guarantee: after
  // Error(kOutOfMemory) the head is as before.
  void extend(int layer, int kv_head, std::int32_t n, std::int32_t first_position);

  // Calls extend() for every head of every layer. After Error(kOutOfMemory) some heads are longer: truncate() them.
  void extend_all(std::int32_t n, std::int32_t first_position);
  // Returns what a step or turn that fails gives to undo(): a fork, or nullopt if truncate() is enough. extend_all()
  // makes codes on a head's last page plain, and they would be other codes afterwards.
  std::optional<RaggedCache> fork_to_undo() const;
  // Undoes an extend_all() from `position` on, before which fork_to_undo() returned `before`.
  void undo(std::optional<RaggedCache> before, std::int32_t position);

  // To be called after a step or turn. Drops the entries that the windows of sliding layers have left: their heads keep
  // their last `window` entries, and emptied pages go back to the pool; no entry is copied. Quantises full plain pages;
  // one for which there is no memory stays as it is until the next call.
  void settle(int layer, int kv_head);
  void settle();

  // Return the address, in memory(), of a row of the plain() types to write to. The entry's page must not have been
  // quantised. A page shared with a fork is copied, which may throw Error(kOutOfMemory); the rows of a fresh extend()
  // are never on one.
  std::byte* key_row(int layer, int kv_head, std::int32_t entry);
  std::byte* value_row(int layer, int kv_head, std::int32_t entry);

  // Sets whether cuts store all entries of a head in the types of those that follow a cut (CacheShape::later). Has no
  // effect if there are no such types.
  void raise_bits(int layer, int kv_head, bool is_raised) { table_.set_raised(layer, kv_head, is_raised); }
  bool is_raised(int layer, int kv_head) const;

  // hold_values() and code_values() enclose a refit of values: in between, cuts store entries in the types of
  // shape().held(). code_values() then quantises the values. Only the caller that holds them may read entries
  // meanwhile.
  void hold_values();
  void code_values(const ParallelFor& parallel_for);
  bool holds_values() const;

  // Sets the error feedback with which keys of a head are quantised until drop_feedback(), while a prompt or turn is
  // read; null: number by number. Forks share it.
  void set_feedback(int layer, int kv_head, std::shared_ptr<const kernels::CodeFeedback> feedback);
  void drop_feedback();

  // Gives the mean key, [key_dim] float16, of the entries that the next append_from or keep of a head quantises, after
  // the first kPlainEntries: where a device has taken it, the cache need not. It is forgotten with the next change.
  void offer_origin(int layer, int kv_head, PageStore::Origin mean) {
    store_.offer_origin(index(layer, kv_head), std::move(mean));
  }

  // Replaces the values [n_entries][value_dim] of a head's entries, in the order of entries(). They are converted to
  // the types in which they are stored.
  void store_values(int layer, int kv_head, const float* values);

  // Copies the entries `indices` (ascending) of `source` to the end of the head, converted to this cache's types where
  // they differ. The source must lie in memory() and not be a view of this head. Strong guarantee.
  //   high: those of `indices` that are to be stored in more bits: whole pages, and none of the first kPlainEntries;
  //   the head must be empty before
  void append_from(int layer, int kv_head, const kernels::HeadEntries& source, std::span<const std::int32_t> indices,
                   std::span<const std::int32_t> high = {});

  // Keeps the entries `indices` (ascending, of entries_by_position) of a head of a layer without a window, compacts
  // them and returns emptied pages to the pool; `high` as above. Entries move within the head's own pages. Pages that
  // are shared with a fork or too small for their new entries are replaced by fresh ones. All memory is taken before
  // anything moves: strong guarantee. A copy of the rows that move is taken outside the pool.
  void keep(int layer, int kv_head, std::span<const std::int32_t> indices, std::span<const std::int32_t> high = {});

  // Drops the entries of every head whose position is >= position (an aborted append). Takes memory, and may throw
  // Error(kOutOfMemory), only if that splits a head's quantised entries of which some are stored in more bits.
  void truncate(std::int32_t position);

  void clear();

  // Write and restore a layer's entries as bytes: sizes and types, then per head the count, its origin (if any) after
  // the numbers 0 and 4, then per page: count, kind (1: plain, 2: in more bits, 3: follows a cut), positions, key rows,
  // value rows. They are in this machine's byte order, whatever the memory is. write throws Error(kIo). restore throws
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
  // Carries a plan out on the bytes and in the table, with the strong guarantee.
  //   source: the entries that the plan reads besides the head's own as they are stored
  void apply(int layer, int kv_head, HeadPlan plan, const kernels::HeadEntries& source);
  void note_change(int layer, int kv_head, std::size_t page) noexcept;
  // Renews the view of a head's page.
  void renew_run(int layer, int kv_head, std::size_t page) noexcept;
  // Extends the head if that adds and copies no page; returns false if it would.
  bool fill_last_page(int layer, int kv_head, std::int32_t n, std::int32_t first_position) noexcept;
  // Returns an entry's slot, on a page that no fork shares.
  PageSlot writable_slot(int layer, int kv_head, std::int32_t entry);
  // Drops the head's origin if it has no quantised keys left.
  void forget_origin(int layer, int kv_head) noexcept;
  void slide_window(int layer, int kv_head) noexcept;
  void quantise_full_pages(int layer, int kv_head);
  // Quantises the refitted values of a page, in place if there is no memory for a smaller page.
  void quantise_values(int layer, int kv_head, std::size_t page);
  void clear(int layer, int kv_head) noexcept;
  class HeadReader;
  void restore_head(int layer, int kv_head, std::istream& in);
  // Appends a page of the kind that a file calls `stored`, whose rows are next in the file.
  void restore_page(int layer, int kv_head, std::int32_t stored, const std::vector<std::int32_t>& positions,
                    std::istream& in);

  CacheShape shape_;
  PageTable table_;
  PageStore store_;
  // [heads of all layers][pages] the runs that entries() shows. They are kept in step with the table and the store, so
  // that a decoding step need not make them.
  std::vector<std::vector<kernels::EntryRun>> runs_;
  std::vector<std::size_t> first_changes_;  // [heads of all layers] results of take_changes()
};

}  // namespace winnow
