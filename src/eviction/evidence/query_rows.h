// A head's part of a layer's view in the form that kernels take: its query rows, slices of its entries, and how many of
// a range of positions are stored.
#pragma once

#include <cstdint>
#include <vector>

#include "eviction/evidence/entry_statistics.h"
#include "winnow/layer_view.h"

namespace winnow {

// Returns the query rows of one KV head's GQA group, from `q` [n_rows][n_head][key_dim] of the last n_rows tokens.
kernels::QueryRows group_rows(const LayerView& view, const float* q, int n_rows, int head);

// Returns the query rows of one KV head's GQA group, from rows that may see all entries.
kernels::QueryRows rows_of_head(const LayerView& view, const StatisticsRows& rows, int head);

// Returns the view's reference rows of one KV head's GQA group, each of which sees all entries.
kernels::QueryRows reference_rows(const LayerView& view, int head);

// Returns the entries [first, last) of a head. `runs` receives the runs and must outlive the result.
kernels::HeadEntries slice_entries(const kernels::HeadEntries& entries, const kernels::AttentionShape& shape,
                                   std::int32_t first, std::int32_t last, std::vector<kernels::EntryRun>& runs);

// Returns the number of a head's entries with a position below `bound`: the runs ascend.
std::int32_t count_below(const kernels::HeadEntries& entries, std::int32_t bound);

// Returns how many of the last n_rows tokens (at least 1) all heads have stored: earlier cuts may have dropped some,
// and a head's entries then do not tell what a row of theirs saw (group_rows).
int stored_rows(const LayerView& view, int n_rows);

}  // namespace winnow
