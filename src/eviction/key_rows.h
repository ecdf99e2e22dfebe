// Goes through a head's stored keys as float32 rows.
#pragma once

#include <vector>

#include "kernels/rows.h"

namespace winnow {

// body(i, key[head_dim]) for the first n entries, in order.
template <typename Body>
void for_each_key(const kernels::AttentionShape& shape, const kernels::HeadEntries& entries, std::int32_t n,
                  const Body& body) {
  std::vector<float> key(shape.key_dim);
  std::int32_t i = 0;
  for (const kernels::EntryRun& run : entries.runs) {
    for (std::int32_t r = 0; r < run.n_entries; ++r, ++i) {
      if (i == n) return;
      kernels::load_row(kernels::row_type(shape, run, kernels::RowKind::kKey),
                        kernels::row_at(shape, run, kernels::RowKind::kKey, r), key.data(), shape.key_dim);
      body(i, key.data());
    }
  }
}

}  // namespace winnow
