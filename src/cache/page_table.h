// The page tables (block tables) of one sequence: which pages a head has, the format of each, how many entries lie on
// them and their first positions. A table consists of integers: it neither reads nor takes a page's memory.
//
// Every change of a head is planned first: a plan is plain data (head_plan.h), planning changes no state and may throw.
// PageStore carries the plan out on the pages' bytes, and commit() then changes the table accordingly.
//
// Entry e of a head is in slot n_skipped + e, slot s on page s / kPageEntries: all pages but the first and the last are
// full. In a layer with a sliding window the first entry's slot is that of its position, modulo kPageEntries, so that
// runs, and with them sums, depend only on positions. If entries are quantised, the first page of other layers holds
// the sinks, and the n_high_pages pages that follow it hold the entries in more bits.
//
// The offsets of positions lie on the pages with the rows (outside the pages of a device), where attention reads them.
// Functions that need positions take the head's entries, as a view with one run per page, and read only the positions.
//
// Not thread-safe, but different threads may plan and commit for different heads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "cache/cache_shape.h"
#include "cache/head_plan.h"
#include "cache/page_format.h"
#include "cache/page_id.h"
#include "winnow/entries.h"

namespace winnow {

struct TablePage {
  PageId id = kNoPage;
  PageKind kind = PageKind::kQuantised;
  PagePositions positions = {};
};

// The pages of one head: its row of the table.
struct HeadPages {
  std::vector<TablePage> pages = {};
  std::int32_t n_entries = 0;
  std::int32_t n_skipped = 0;    // slots of the first page before the first entry
  std::size_t n_high_pages = 0;  // after the first page
  bool is_raised = false;        // a cut stores all entries in the format of those that follow one
  bool has_origin = false;       // its quantised keys are stored minus a common origin

  static std::size_t page_of(std::int32_t slot) { return static_cast<std::size_t>(slot / kPageEntries); }
  // Returns the number of pages that have n slots.
  static std::size_t pages_for(std::int32_t n) { return page_of(n + kPageEntries - 1); }
  std::size_t page_of_entry(std::int32_t entry) const { return page_of(n_skipped + entry); }
  std::int32_t slot_of_entry(std::int32_t entry) const { return (n_skipped + entry) % kPageEntries; }
  // Returns the slot of a page's first entry.
  std::int32_t first_slot(std::size_t page) const { return page == 0 ? n_skipped : 0; }
  std::int32_t entries_on(std::size_t page) const;
};

// Returns true if other tables hold the page, too: it must not be written to.
using IsShared = std::function<bool(PageId)>;

// How appended entries are stored.
enum class AppendedAs {
  kIncoming,  // as they arrive; entries on a page that they continue are turned back
  kCut,       // as a cut stores them
  kAfterCut,  // as full pages of entries that follow a cut
};

class PageTable {
 public:
  explicit PageTable(const CacheShape& shape);

  const LayerFormat& layer(int layer) const { return layers_[static_cast<std::size_t>(layer)]; }
  std::size_t n_heads() const { return heads_.size(); }  // of all layers
  // Returns the number of a head among those of all layers.
  std::size_t index(int layer, int kv_head) const;
  const HeadPages& head(int layer, int kv_head) const { return heads_[index(layer, kv_head)]; }
  std::span<const HeadPages> heads() const { return heads_; }

  std::int64_t n_entries() const;
  std::int64_t n_cut_entries() const;  // in layers without a window
  std::size_t bytes() const;           // of all entries
  std::size_t bytes_in_pages() const;
  // Returns the bytes in pages that `other`, of the same shape, does not hold at the same place.
  std::size_t bytes_beyond(const PageTable& other) const;

  // Returns the indices of a head's entries in ascending position.
  static std::vector<std::int32_t> by_position(const HeadPages& head, const kernels::HeadEntries& entries);

  // Plans to add entries after the last one. Their positions ascend, except where high pages end.
  //   n_high_pages: high pages of the head from then on
  HeadPlan plan_append(int layer, int kv_head, std::vector<std::int32_t> positions, AppendedAs as,
                       std::size_t n_high_pages, const kernels::HeadEntries& entries, const IsShared& is_shared) const;

  // Returns true if new entries go to the head's last page once its entries have been converted: a page in codes that
  // is not full.
  bool converts_last_page(int layer, int kv_head) const noexcept;

  // Returns true if n new entries, with positions from first_position on, only fill up the last page, as in most
  // decoding steps. If no other table holds that page, they need no plan: their offsets are written and the entries
  // added.
  bool fills_last_page(int layer, int kv_head, std::int32_t n, std::int32_t first_position) const noexcept;
  void add_to_last_page(int layer, int kv_head, std::int32_t n) noexcept { at(layer, kv_head).n_entries += n; }

  // Plans to add copies of entries `indices` (ascending) of `source`, as a cut stores them, with the entries `high` of
  // them in more bits. `high` fills whole pages and has none of the head's first kPlainEntries; unless it is empty, the
  // head is empty.
  HeadPlan plan_append_from(int layer, int kv_head, const kernels::HeadEntries& source,
                            std::span<const std::int32_t> indices, std::span<const std::int32_t> high,
                            const kernels::HeadEntries& entries, const IsShared& is_shared) const;

  // Plans to keep the entries `kept` (ascending, by position) of a head of a layer without a window, `high` as above.
  // Unchanged pages stay; those that are shared or too small for their new entries are replaced.
  HeadPlan plan_cut(int layer, int kv_head, std::span<const std::int32_t> kept, std::span<const std::int32_t> high,
                    const kernels::HeadEntries& entries, const IsShared& is_shared) const;

  // Plans to drop the entries from a position on. It is a cut if these do not lie at the end of the head or split its
  // high pages.
  HeadPlan plan_truncate(int layer, int kv_head, std::int32_t position, const kernels::HeadEntries& entries,
                         const IsShared& is_shared) const;

  // Plans to move a page's entries to a fresh page of a kind: its present kind, if the head needs a page of its own, or
  // another.
  HeadPlan plan_convert(int layer, int kv_head, std::size_t page, PageKind kind) const;

  // Full pages [first, last) of entries as they arrived, which are to be quantised now, in this order, with one plan
  // each.
  struct PageRange {
    std::size_t first, last;
  };
  PageRange full_pages_to_quantise(int layer, int kv_head) const;
  HeadPlan plan_quantise(int layer, int kv_head, std::size_t page, const kernels::HeadEntries& entries) const;

  // pages_before_window returns the number of pages of a head that its window has left, which the caller releases.
  // slide_window forgets these pages and the entries that the window has left.
  std::size_t pages_before_window(int layer, int kv_head) const;
  void slide_window(int layer, int kv_head) noexcept;

  // Takes the memory that commit needs, with the strong guarantee.
  void reserve(int layer, int kv_head, std::size_t n_pages) { grow(at(layer, kv_head).pages, n_pages); }
  void commit(int layer, int kv_head, const HeadPlan& plan) noexcept;

  void set_raised(int layer, int kv_head, bool is_raised) noexcept { at(layer, kv_head).is_raised = is_raised; }
  void set_kind(int layer, int kv_head, std::size_t page, PageKind kind) noexcept;
  void set_origin(int layer, int kv_head, bool has_origin) noexcept { at(layer, kv_head).has_origin = has_origin; }
  bool has_quantised_keys(int layer, int kv_head) const;
  // Sets whether cuts leave values for a refit to quantise, in the layers without a window.
  void set_awaits_refit(bool awaits) noexcept;
  bool awaits_refit() const;
  // Sets the types of a layer's window, which was read from an old file that stored other ones.
  void set_window_types(int layer, EntryType key_type, EntryType value_type) noexcept;

  void clear(int layer, int kv_head) noexcept { at(layer, kv_head) = HeadPages(); }

  // Makes room for n elements, so that adding them one by one stays linear.
  template <class T>
  static void grow(std::vector<T>& list, std::size_t n) {
    if (n > list.capacity()) list.reserve(std::max(n, 2 * list.capacity()));
  }

 private:
  HeadPages& at(int layer, int kv_head) { return heads_[index(layer, kv_head)]; }
  // Returns which of n entries the head's origin is to be the mean of, if `quantised` are the first ones to be
  // quantised. Empty if the head has an origin or quantised keys already.
  HeadPlan::Range origin_range(int layer, int kv_head, HeadPlan::Range quantised, std::int32_t n,
                               std::int32_t last_position) const;

  std::vector<LayerFormat> layers_;      // [n_layer]
  std::vector<std::size_t> first_head_;  // [n_layer], in heads_
  std::vector<HeadPages> heads_;         // of all layers, one layer after the other
  bool is_truncatable_;
};

}  // namespace winnow
