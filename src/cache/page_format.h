// The formats of a layer's pages: in which types entries are stored while they wait, after a cut and between cuts, and
// how a page's slots lie.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "cache/cache_shape.h"
#include "winnow/entries.h"
#include "winnow/entry_type.h"

namespace winnow {

// What a page holds. Several kinds may have one format; where nothing is quantised, all do.
enum class PageKind : std::uint8_t {
  kQuantised,          // as a cut stores entries; the only kind of a cache that quantises nothing
  kHigh,               // the best entries of a cut, in more bits
  kAfterCut,           // full pages of what follows a cut, until the next one
  kFloat,              // entries as they come, before they are quantised
  kSinkPage,           // a head's first page: its first entries, which stay as they come
  kAwaitingRefit,      // as kQuantised, with values that are quantised once they are refitted
  kHighAwaitingRefit,  // as kHigh, likewise
};
inline constexpr std::size_t kPageKinds = 7;

// How the slots of a page lie: keys, then values, then the offsets of positions, which in a pool of device memory lie
// beside the page.
struct PageFormat {
  EntryType key_type = EntryType::kF16, value_type = EntryType::kF16;
  std::size_t key_bytes = 0, value_bytes = 0;  // of a row
  std::int32_t first_slot = 0;                 // a sink page has room for its entries only, its last slots

  std::size_t n_slots() const { return static_cast<std::size_t>(kPageEntries - first_slot); }
  std::size_t row_bytes() const { return key_bytes + value_bytes; }
  std::size_t entry_bytes() const { return row_bytes() + kernels::kPositionBytes; }
  std::size_t offset_bytes() const { return n_slots() * kernels::kPositionBytes; }
  // As the pool takes it: in units of a cache line.
  std::size_t page_bytes() const { return (n_slots() * entry_bytes() + 63) / 64 * 64; }
};

struct LayerFormat {
  int n_kv_head = 0;
  int key_dim = 0, value_dim = 0;
  std::int32_t sliding_window = 0;  // entries that can still be seen; 0: all
  bool is_quantised = false;
  std::array<PageFormat, kPageKinds> formats = {};  // by kind
  PageKind after_cut = PageKind::kQuantised;        // how pages that follow a cut are stored once they are full
  bool awaits_refit = false;                        // cuts leave values for a refit to quantise

  const PageFormat& of(PageKind kind) const { return formats[static_cast<std::size_t>(kind)]; }
  PageFormat& of(PageKind kind) { return formats[static_cast<std::size_t>(kind)]; }
  bool has_quantised_keys(PageKind kind) const { return kernels::is_coded(of(kind).key_type); }
  bool has_sink_page() const { return is_quantised && sliding_window == 0; }

  // How entries come, on a head's page of this number.
  PageKind incoming(std::size_t page) const {
    if (has_sink_page() && page == 0) return PageKind::kSinkPage;
    return is_quantised ? PageKind::kFloat : PageKind::kQuantised;
  }
  // Whether cuts store all of a head, if it is raised, as what follows them.
  bool raises(bool is_raised) const { return is_raised && after_cut == PageKind::kAfterCut; }
  // How a cut stores a page of a head that will have so many high pages.
  PageKind cut(std::size_t page, std::size_t n_high_pages, bool is_raised) const;
  // Slots before the entry of this position, if it is a head's first.
  std::int32_t skipped(std::int32_t position) const {
    return sliding_window > 0 ? position % kPageEntries : of(incoming(0)).first_slot;
  }
};

// Of one layer of a shape.
LayerFormat layer_format(const CacheShape& shape, int layer);

}  // namespace winnow
