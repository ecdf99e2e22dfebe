// Loops over a head's stored rows, which are dequantised to float32 from the format of each run.
#pragma once

#include <vector>

#include "kernels/entries/rows.h"

namespace winnow {

// Calls body(i, row) for the first n entries in order, row [key_dim] or [value_dim].
template <typename Body>
void for_each_row(const kernels::AttentionShape& shape, const kernels::HeadEntries& entries, kernels::RowKind kind,
                  std::int32_t n, const Body& body) {
  const int size = kind == kernels::RowKind::kKey ? shape.key_dim : shape.value_dim;
  std::vector<float> row(size);
  std::int32_t i = 0;
  for (const kernels::EntryRun& run : entries.runs) {
    for (std::int32_t r = 0; r < run.n_entries; ++r, ++i) {
      if (i == n) return;
      kernels::load_entry(shape, run, kind, r, row.data());
      body(i, row.data());
    }
  }
}

// Returns the rows of the first n entries: [n][key_dim] or [n][value_dim].
inline std::vector<float> load_rows(const kernels::AttentionShape& shape, const kernels::HeadEntries& entries,
                                    kernels::RowKind kind, std::int32_t n) {
  const int size = kind == kernels::RowKind::kKey ? shape.key_dim : shape.value_dim;
  std::vector<float> rows;
  rows.reserve(static_cast<std::size_t>(n) * static_cast<std::size_t>(size));
  for_each_row(shape, entries, kind, n,
               [&](std::int32_t, const float* row) { rows.insert(rows.end(), row, row + size); });
  return rows;
}

}  // namespace winnow
