// What becomes of a head's pages, decided before a byte moves: PageTable makes plans, PageStore carries them out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "cache/page_format.h"
#include "cache/page_id.h"

namespace winnow {

// A page's slots hold 16-bit offsets from the position of its first entry.
struct PagePositions {
  std::int32_t origin = 0;
  // [kPageEntries] by slot: what counts instead of the offsets, as long as the last entry lies too far after the first.
  // Shared with forks.
  std::shared_ptr<const std::vector<std::int32_t>> far = {};
};

// n neighbouring entries that go from one page to neighbouring slots of one page, and are converted where the two kinds
// have different formats. Pages are numbers within the head's table: the source of the table as it is, the target of
// the table that the plan makes.
struct EntryMove {
  static constexpr std::int32_t kOutside = -1;

  std::int32_t from_page;  // kOutside: the entries are not the head's own, and from_slot is the index of the first
  std::int32_t from_slot;
  std::int32_t to_page;
  std::uint8_t to_slot;
  std::uint8_t n;
  PageKind from_kind;  // without meaning for entries from outside
  PageKind to_kind;
};

// A page that a plan adds, replaces or writes to. All others stay as they are or go.
struct PageChange {
  enum class Memory : std::uint8_t {
    kSame,          // the page that is there
    kFresh,         // a new one, which is there before anything moves: without it the plan cannot be carried out
    kFreshIfThere,  // a smaller one, taken after others have gone; where there is none the page that is there, which
                    // has room
  };

  std::size_t page;  // its number in the head's table
  PageKind kind;
  Memory memory = Memory::kSame;
  PageId id = kNoPage;  // known when the plan has been carried out
  PagePositions positions = {};
  std::int32_t first_placed = 0;  // slot of the first entry whose position is written
  std::int32_t n_placed = 0;      // of these
};

struct HeadPlan {
  // How moves are to be carried out.
  enum class Order : std::uint8_t {
    kAsListed,   // one after the other: none writes over the source of a later one
    kReadFirst,  // all sources are read before anything is written
  };
  // Entries of the source, by index.
  struct Range {
    std::int32_t first = 0, last = 0;
    bool is_empty() const { return first >= last; }
  };

  // The head as the plan makes it.
  std::size_t n_pages = 0;
  std::int32_t n_entries = 0;
  std::int32_t n_skipped = 0;
  std::size_t n_high_pages = 0;
  bool has_origin = false;

  Range origin_from = {};                    // the head gets the mean of these keys as its origin; empty: none
  std::vector<PageChange> changes = {};      // in ascending order of page
  std::vector<std::int32_t> positions = {};  // of the entries that the changes place, in their order
  std::vector<EntryMove> moves = {};         // to pages among the changes, in ascending order of page and slot
  Order order = Order::kAsListed;
};

}  // namespace winnow
