// What the kernels get of a layer's view: a head's query rows, and slices of its entries.
#pragma once

#include <cstdint>
#include <vector>

#include "winnow/layer_view.h"

namespace winnow {

// A window's worth of query rows of one KV head's group. `q` points at row 0 of all heads.
kernels::QueryRows group_rows(const LayerView& view, const float* q, int n_rows, int head);

// The view's reference rows of one KV head's group: each sees all entries.
kernels::QueryRows reference_rows(const LayerView& view, int head);

// The entries [first, last) of a head; `runs` receives the runs and must outlive the result.
kernels::HeadEntries slice_entries(const kernels::HeadEntries& entries, const kernels::AttentionShape& shape,
                                   std::int32_t first, std::int32_t last, std::vector<kernels::EntryRun>& runs);

}  // namespace winnow
