// The plan of a change to a head's pages, made before a byte moves: PageTable makes plans, PageStore carries them out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "cache/page_format.h"
#include "cache/page_id.h"

namespace winnow {

// The positions of a page's entries. Its slots hold 16-bit offsets from the position of its first entry.
struct PagePositions {
  std::int32_t origin = 0;
  // [kPageEntries] by slot: the positions that replace the offsets if the last entry lies too far after the first.
  // Shared with forks.
  std::shared_ptr<const std::vector<std::int32_t>> far = {};
};

// A move of n neighbouring entries from one page to neighbouring slots of one page. They are converted if the two kinds
// have different formats. Pages are numbers within the head's table: the source in the table as it is, the target in
// the table that the plan makes.
struct EntryMove {
  static constexpr std::int32_t kOutside = -1;

  std::int32_t from_page;  // kOutside: the entries are not in the head, and from_slot is the index of the first
  std::int32_t from_slot;
  std::int32_t to_page;
  std::uint8_t to_slot;
  std::uint8_t n;
  PageKind from_kind;  // unused for entries from outside
  PageKind to_kind;
};

// A page that a plan adds, replaces or writes to. All other pages stay as they are or are dropped.
struct PageChange {
  enum class Memory : std::uint8_t {
    kSame,          // the present page
    kFresh,         // a new page, acquired before anything moves: without it the plan cannot be carried out
    kFreshIfThere,  // a smaller page, acquired after others are released; if there is none, the present page, which has
                    // room
  };

  std::size_t page;  // its number in the head's table
  PageKind kind;
  Memory memory = Memory::kSame;
  PageId id = kNoPage;  // set when the plan is carried out
  PagePositions positions = {};
  std::int32_t first_placed = 0;  // slot of the first entry whose position is written
  std::int32_t n_placed = 0;      // number of entries whose position is written
};

struct HeadPlan {
  // The order in which moves are carried out.
  enum class Order : std::uint8_t {
    kAsListed,   // one after the other: no move writes over the source of a later one
    kReadFirst,  // all sources are read before anything is written
  };
  // Entries of the source, by index.
  struct Range {
    std::int32_t first = 0, last = 0;
    bool is_empty() const { return first >= last; }
  };

  // The head after the plan.
  std::size_t n_pages = 0;
  std::int32_t n_entries = 0;
  std::int32_t n_skipped = 0;
  std::size_t n_high_pages = 0;
  bool has_origin = false;

  Range origin_from = {};                    // the mean of these keys becomes the head's origin; empty: none
  std::vector<PageChange> changes = {};      // in ascending order of page
  std::vector<std::int32_t> positions = {};  // of the entries that the changes place, in the order of the changes
  std::vector<EntryMove> moves = {};         // to pages among the changes, ascending by page and slot
  Order order = Order::kAsListed;
};

}  // namespace winnow
