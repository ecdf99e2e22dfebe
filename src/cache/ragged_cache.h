// The KV cache of one sequence: every (layer, KV head) has its own length, its own entries and its own pages.
//
// Not thread-safe, with two exceptions: different threads may change different heads, and after extend() they may write
// different rows of the new entries.
// Forks share pages; a write to a shared page copies it first, so forks may live on different threads.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <new>
#include <span>
#include <vector>

#include "cache/cache_shape.h"
#include "cache/key_writer.h"
#include "cache/page_pool.h"
#include "kernels/entries/code_feedback.h"
#include "winnow/entries.h"
#include "winnow/entry_type.h"
#include "winnow/error.h"
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
// Where a cut's best entries are stored in more bits (CacheShape::fine), they are whole pages of a head, behind its
// first page and before all others: pages have one format each. What follows a cut may have a format of its own
// (CacheShape::later): nothing has ranked it, and most of what comes attends to it.
class RaggedCache {
 public:
  RaggedCache(const CacheShape& shape, std::shared_ptr<PagePool> pool);
  RaggedCache(RaggedCache&&) noexcept = default;
  RaggedCache& operator=(RaggedCache&&) noexcept = default;

  // Another sequence with the same entries. Costs no page until one of the two writes.
  RaggedCache fork() const;

  const CacheShape& shape() const { return shape_; }
  // Another part of what the next cut keeps in more bits.
  void set_fine_part(double part) { shape_.fine->part = part; }
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

  // A row of the plain() types to write to, of an entry whose page has not been coded. On a page shared with a fork
  // this copies the page, and may throw Error(kOutOfMemory); the rows of a fresh extend() are never on one.
  std::byte* key_row(int layer, int kv_head, std::int32_t entry);
  std::byte* value_row(int layer, int kv_head, std::int32_t entry);

  // From here on cuts store all of a head in the types of what follows a cut (CacheShape::later), or no longer. Has no
  // effect where these are not given.
  void raise_bits(int layer, int kv_head, bool is_raised) { head(layer, kv_head).is_raised = is_raised; }
  bool is_raised(int layer, int kv_head) const { return head(layer, kv_head).is_raised; }

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
  // they differ. The source is not a view of this head. Strong guarantee. fine: those of `indices` that are to be
  // stored in more bits, whole pages of them and not among the first kPlainEntries; the head is empty before.
  void append_from(int layer, int kv_head, const kernels::HeadEntries& source, std::span<const std::int32_t> indices,
                   std::span<const std::int32_t> fine = {});

  // Keeps the entries `indices` (ascending, of entries_by_position) of a head of a layer without a window, compacts
  // them and returns emptied pages to the pool; `fine` as above. Entries move within the head's own pages. Pages shared
  // with a fork, and those for which theirs are too small, are replaced by fresh ones. All memory is taken before
  // anything moves: strong guarantee. Takes a copy of the rows that move, not in the pool.
  void keep(int layer, int kv_head, std::span<const std::int32_t> indices, std::span<const std::int32_t> fine = {});

  // Drops the last entries of every head whose position is >= position (an aborted append). Takes memory, and may throw
  // Error(kOutOfMemory), only where that parts a head's coded entries of which some are stored in more bits.
  void truncate(std::int32_t position);

  void clear();

  // A layer's entries as bytes (sizes and types, then per head: count, its origin if it has one behind the numbers 0
  // and 4, then per page: count, 1 if it is plain, 2 if it is in more bits or 3 if it followed a cut, positions, key
  // rows, value rows), in this machine's byte order. write throws Error(kIo). restore throws Error(kBadFile) on
  // anything that does not fit this cache's shape, and Error(kOutOfMemory); either leaves the cache empty.
  void write(std::ostream& out, int layer) const;
  void restore(std::istream& in, int layer);

 private:
  // How the slots of a page lie: keys, then values, then positions.
  struct Format {
    EntryType key_type, value_type;
    std::size_t key_bytes, value_bytes;
    std::int32_t first_slot;  // a head's first page has room for its plain entries only, its last slots

    std::size_t n_slots() const { return static_cast<std::size_t>(kPageEntries - first_slot); }
    std::size_t entry_bytes() const { return key_bytes + value_bytes + kernels::kPositionBytes; }
    // As the pool takes it: in units of a cache line.
    std::size_t page_bytes() const { return (n_slots() * entry_bytes() + 63) / 64 * 64; }
  };
  enum Kind : std::uint8_t { kCoded, kFine, kLater, kPlain, kFirst, kHeld, kHeldFine };
  static constexpr int kKinds = 7;

  // A page's slots hold 16-bit offsets from the position of its first entry.
  struct PagePositions {
    std::int32_t origin = 0;
    // [kPageEntries] by slot: instead, as long as the last entry lies too far behind. Shared with forks until one of
    // them writes.
    std::shared_ptr<std::vector<std::int32_t>> far = {};
  };

  // Entry e is in slot n_skipped + e, slot s on page s / kPageEntries: all pages but the first and the last are full.
  // In a layer with a window the first entry's slot is that of its position, modulo kPageEntries: runs, and with them
  // sums, depend on nothing else. Where rows are coded, the first page of other layers holds the plain entries, and the
  // n_fine pages behind it those in more bits.
  struct Head {
    std::vector<PageRef> pages;
    std::vector<Kind> kinds;               // [pages]
    std::vector<PagePositions> positions;  // [pages]
    std::vector<kernels::EntryRun> runs;   // one per page, kept in step with it
    std::int32_t n_entries = 0;
    std::int32_t n_skipped = 0;  // slots of the first page before the first entry
    std::size_t n_fine = 0;      // pages
    bool is_raised = false;      // a cut stores it as what follows one
    std::shared_ptr<const kernels::CodeFeedback> feedback = {};
    std::shared_ptr<const std::vector<std::byte>> origin = {};  // [key_dim] float16; shared with forks

    // What keys of a page in this format are stored less.
    const std::byte* origin_of(const Format& format) const {
      return origin && kernels::is_coded(format.key_type) ? origin->data() : nullptr;
    }
  };
  // Sizes of one layer.
  struct Layout {
    std::size_t first_head;  // in heads_
    int key_dim, value_dim;
    Format formats[kKinds];  // all the same where nothing is coded
    std::int32_t window;
    bool has_codes;
    Kind later = kCoded;  // how pages that follow a cut are stored once they are full
    bool holds_values = false;

    const Format& coded() const { return formats[kCoded]; }
    bool has_first_page() const { return has_codes && window == 0; }
    bool raises(const Head& head) const { return head.is_raised && later == kLater; }
    // How a cut stores a page.
    Kind settled(const Head& head, std::size_t page) const {
      if (has_first_page() && page == 0) return kFirst;
      if (raises(head)) return holds_values ? kPlain : later;
      if (page <= head.n_fine && head.n_fine > 0) return holds_values ? kHeldFine : kFine;
      return holds_values ? kHeld : kCoded;
    }
    // How it is stored before.
    Kind plain(std::size_t page) const {
      if (has_first_page() && page == 0) return kFirst;
      return has_codes ? kPlain : kCoded;
    }
    // Slots before the entry of this position, if it is a head's first.
    std::int32_t skipped(std::int32_t position) const {
      return window > 0 ? position % kPageEntries : formats[plain(0)].first_slot;
    }
  };
  // The parts of a page that belong to one entry.
  struct Slot {
    std::byte* key;
    std::byte* value;
    std::uint16_t* offset;  // of its position from the page's origin
  };

  static std::size_t page_of(std::int32_t slot) { return static_cast<std::size_t>(slot / kPageEntries); }
  // Pages that have n slots.
  static std::size_t pages_for(std::int32_t n) { return page_of(n + kPageEntries - 1); }
  Head& head(int layer, int kv_head);
  const Head& head(int layer, int kv_head) const;
  const Layout& layout(int layer) const { return layouts_[static_cast<std::size_t>(layer)]; }
  static Slot slot(const Format& format, const PageRef& page, std::int32_t index);
  static Slot slot_of(const Layout& layout, const Head& head, std::int32_t entry);

  // A page's slot of its first entry.
  static std::int32_t first_slot_of(const Head& head, std::size_t page) { return page == 0 ? head.n_skipped : 0; }
  // The run of `n_entries` entries from a slot of a page on.
  static kernels::EntryRun run_of(const Layout& layout, const Head& head, std::size_t page, std::int32_t first_slot,
                                  std::int32_t n_entries);
  // After the page, its kind or its positions have changed.
  static void renew_run(const Layout& layout, Head& head, std::size_t page);
  static std::int32_t position_of(const Head& head, std::int32_t entry);
  // On a page that no fork shares; a page's entries one after the other from its first on. One
  // that lies kOffsets or more behind its page's first takes [kPageEntries] numbers, `spare` if there is one.
  static void set_position(const Layout& layout, Head& head, std::int32_t entry, std::int32_t position,
                           std::shared_ptr<std::vector<std::int32_t>>* spare = nullptr);
  // Runs what takes memory that can be done without; returns whether there was any.
  template <typename Body>
  static bool has_memory_for(const Body& body) {
    try {
      body();
      return true;
    } catch (const std::bad_alloc&) {
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kOutOfMemory) throw;
    }
    return false;
  }
  PageRef acquire(const Layout& layout, Kind kind) { return pool_->acquire(layout.formats[kind].page_bytes()); }
  void make_writable(const Layout& layout, Head& head, std::size_t page);
  static bool has_coded_keys(const Layout& layout, const Head& head);
  // Before keys of a head are coded, entries [first, last) of `source` being the first that are: where no code is there
  // yet, the head gets the origin of its keys.
  void find_origin(const Layout& layout, Head& head, const kernels::HeadEntries& source, std::int32_t first,
                   std::int32_t last) const;
  // Once a head may have no code left.
  static void forget_origin(const Layout& layout, Head& head);
  static KeyWriter key_writer(const Layout& layout, const Head& head) {
    return KeyWriter(head.feedback.get(), head.origin ? head.origin->data() : nullptr, layout.key_dim);
  }
  // Copies an entry's key and value from one format's slot of the head to another's.
  static void convert_entry(const Layout& layout, const Head& head, const Format& from, const Slot& source,
                            const Format& to, const Slot& target, KeyWriter& keys);
  // Copies keys and values of entry from[i] to entry i, one after the other. from ascends, so that none is written over
  // before it is read.
  static void move_forward(const Layout& layout, const Head& head, std::span<const std::int32_t> from, KeyWriter& keys);
  // Moves a page's entries to one of another kind. Strong guarantee.
  void recode(const Layout& layout, Head& head, std::size_t page, Kind kind);
  // Adds n entries, of which the first has the position first_position, without contents: on pages as they come, as
  // a cut stores them, or as they are stored that follow it. Strong guarantee.
  enum class Stage { kPlain, kCut, kLater };
  void grow(const Layout& layout, Head& head, std::int32_t n, std::int32_t first_position, Stage stage);
  // The entries in ascending position.
  static std::vector<std::int32_t> by_position(const Head& head);
  // `indices` in the order in which they are stored.
  static std::vector<std::int32_t> in_storage_order(std::span<const std::int32_t> indices,
                                                    std::span<const std::int32_t> fine);
  // Drops all entries but the first n.
  static void shrink(const Layout& layout, Head& head, std::int32_t n);
  void slide(const Layout& layout, Head& head);
  // Codes the values of a page that holds them, where they lie if there is no memory for a smaller page.
  void code_page(const Layout& layout, Head& head, std::size_t page);
  void restore_head(const Layout& layout, Head& head, std::istream& in);

  CacheShape shape_;
  std::vector<Layout> layouts_;  // [n_layer]
  std::shared_ptr<PagePool> pool_;
  std::vector<Head> heads_;  // of all layers, one layer after the other
};

}  // namespace winnow
