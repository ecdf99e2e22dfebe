// The formats of a layer's pages: the types in which entries are stored before a cut, after a cut and between cuts, and
// the layout of a page's slots.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/round_up.h"
#include "cache/cache_shape.h"
#include "winnow/entries.h"
#include "winnow/entry_type.h"

namespace winnow {

// The kind of a page. Several kinds may have the same format; if nothing is quantised, all do.
enum class PageKind : std::uint8_t {
  kQuantised,          // entries as a cut stores them; the only kind in a cache that does not quantise
  kHigh,               // the best entries of a cut, in more bits
  kAfterCut,           // full pages of entries that follow a cut, until the next one
  kFloat,              // entries as they arrive, before they are quantised
  kSinkPage,           // a head's first page: its first entries, which stay as they arrive
  kAwaitingRefit,      // as kQuantised, with values that are quantised once they are refitted
  kHighAwaitingRefit,  // as kHigh, with values that are quantised once they are refitted
};
inline constexpr std::size_t kPageKinds = 7;

// The layout of a page's slots: keys, then values, then the offsets of positions, which lie outside the page in a pool
// of device memory.
struct PageFormat {
  EntryType key_type = EntryType::kF16, value_type = EntryType::kF16;
  std::size_t key_bytes = 0, value_bytes = 0;  // of a row
  std::int32_t first_slot = 0;                 // a sink page has only its last slots

  std::size_t n_slots() const { return static_cast<std::size_t>(kPageEntries - first_slot); }
  std::size_t row_bytes() const { return key_bytes + value_bytes; }
  std::size_t entry_bytes() const { return row_bytes() + kernels::kPositionBytes; }
  std::size_t offset_bytes() const { return n_slots() * kernels::kPositionBytes; }
  // The page's size in the pool: a multiple of a cache line.
  std::size_t page_bytes() const { return round_up(n_slots() * entry_bytes(), 64); }
};

struct LayerFormat {
  int n_kv_head = 0;
  int key_dim = 0, value_dim = 0;
  std::int32_t sliding_window = 0;  // entries that can still be seen; 0: all
  bool is_quantised = false;
  std::array<PageFormat, kPageKinds> formats = {};  // by kind
  PageKind after_cut = PageKind::kQuantised;        // kind of full pages that follow a cut
  bool awaits_refit = false;                        // cuts leave values for a refit to quantise

  const PageFormat& of(PageKind kind) const { return formats[static_cast<std::size_t>(kind)]; }
  PageFormat& of(PageKind kind) { return formats[static_cast<std::size_t>(kind)]; }
  bool has_quantised_keys(PageKind kind) const { return kernels::is_coded(of(kind).key_type); }
  bool has_sink_page() const { return is_quantised && sliding_window == 0; }

  // Returns the kind in which entries arrive on a head's page of this number.
  PageKind incoming(std::size_t page) const {
    if (has_sink_page() && page == 0) return PageKind::kSinkPage;
    return is_quantised ? PageKind::kFloat : PageKind::kQuantised;
  }
  // Returns true if the head is raised and cuts therefore store all its entries in the format of those that follow a
  // cut.
  bool raises(bool is_raised) const { return is_raised && after_cut == PageKind::kAfterCut; }
  // Returns the kind in which a cut stores this page of a head that will have n_high_pages high pages.
  PageKind cut(std::size_t page, std::size_t n_high_pages, bool is_raised) const;
  // Returns the number of slots before a head's first entry, which has this position.
  std::int32_t skipped(std::int32_t position) const {
    return sliding_window > 0 ? position % kPageEntries : of(incoming(0)).first_slot;
  }
};

// Returns the format of one layer of a shape.
LayerFormat layer_format(const CacheShape& shape, int layer);

}  // namespace winnow
