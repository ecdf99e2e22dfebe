// Walks over the runs of a head's entries by the index of an entry.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "winnow/entries.h"

namespace winnow::kernels {

// A cursor that moves forward only. Entries [index, index + count) of a piece are contiguous in memory.
class RunCursor {
 public:
  explicit RunCursor(const HeadEntries& entries) : runs_(entries.runs) {}

  struct Piece {
    const EntryRun* run;
    std::int32_t offset;  // index of the entry in its run
    std::int32_t count;   // entries from there to the end of the run
  };

  // Returns the piece that begins with entry `index`, which must exist and not be before the last one asked for.
  Piece seek(std::int32_t index) {
    while (index - base_ >= runs_[run_].n_entries) base_ += runs_[run_++].n_entries;
    const EntryRun& run = runs_[run_];
    return {&run, index - base_, run.n_entries - (index - base_)};
  }

 private:
  std::span<const EntryRun> runs_;
  std::size_t run_ = 0;
  std::int32_t base_ = 0;  // index of the first entry of the current run
};

// Returns n entries of a run, from one on.
inline EntryRun part_of(const EntryRun& run, std::int32_t first, std::int32_t n, int key_dim, int value_dim) {
  EntryRun part = run;
  part.keys += static_cast<std::size_t>(first) * row_bytes(run.key_type, key_dim);
  part.values += static_cast<std::size_t>(first) * row_bytes(run.value_type, value_dim);
  part.positions = run.positions.from(first);
  part.n_entries = n;
  return part;
}

// Finds the first entry inside the sliding window of a row, for rows in ascending order of position.
class WindowBound {
 public:
  WindowBound(const HeadEntries& entries, std::int32_t sliding_window) : runs_(entries.runs), window_(sliding_window) {}

  // Returns the index of the first entry whose position is above `position` - window (the number of entries if there is
  // none).
  std::int32_t first_visible(std::int32_t position) {
    if (window_ <= 0) return 0;
    const std::int32_t hidden = position - window_;  // the last position that the row no longer sees
    while (run_ < runs_.size()) {
      const EntryRun& run = runs_[run_];
      if (run.n_entries > 0 && run.positions[run.n_entries - 1] > hidden) {
        return base_ + run.positions.count_below(hidden + 1, run.n_entries);
      }
      base_ += run.n_entries;
      ++run_;
    }
    return base_;
  }

 private:
  std::span<const EntryRun> runs_;
  std::int32_t window_;
  std::size_t run_ = 0;
  std::int32_t base_ = 0;
};

// The entries [first, last) that a query row sees.
struct VisibleRange {
  std::int32_t first;
  std::int32_t last;
};

// Writes the entries that each row sees to ranges [rows.n_rows].
inline void visible_ranges(const AttentionShape& shape, const HeadEntries& entries, const QueryRows& rows,
                           VisibleRange* ranges) {
  WindowBound bound(entries, shape.spec.sliding_window);
  for (std::int32_t r = 0; r < rows.n_rows; ++r) {
    const std::int32_t last = std::clamp(rows.n_visible + r, 0, entries.n_entries);
    ranges[r] = {std::min(bound.first_visible(rows.first_position + r), last), last};
  }
}

}  // namespace winnow::kernels
