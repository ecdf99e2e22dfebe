#include "cache/entry_sink.h"

#include <cassert>

namespace winnow {

void CacheSink::begin_rows(int layer, std::int32_t first_position, std::int32_t n_rows) {
  layer_ = layer;
  first_position_ = first_position;
  n_rows_ = n_rows;
}

// Positions have been consecutive since the cache was extended, so the last entry's position gives the number of rows
// at the end.
EntrySink::Head CacheSink::head(int kv_head) const {
  const kernels::HeadEntries entries = cache_.entries(layer_, kv_head);
  assert(entries.n_entries > 0);
  const kernels::EntryRun& run = entries.runs.back();
  const std::int32_t last_position = run.positions[run.n_entries - 1];
  return {.entries = entries, .n_before = entries.n_entries - (last_position - first_position_ + 1)};
}

HeadRows CacheSink::head_rows(int kv_head) const {
  HeadRows rows = cache_.head_rows(layer_, kv_head);
  rows.n_entries = head(kv_head).n_before + n_rows_;
  rows.pages.resize(HeadPages::pages_for(rows.first_slot + rows.n_entries));
  return rows;
}

}  // namespace winnow
