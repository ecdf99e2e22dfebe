#include "eviction/evidence/query_rows.h"

#include <algorithm>
#include <ranges>

#include "kernels/entries/run_cursor.h"

namespace winnow {

kernels::QueryRows group_rows(const LayerView& view, const float* q, int n_rows, int head) {
  const std::int64_t row_stride = std::int64_t{view.n_head} * view.shape.key_dim;
  const std::int64_t group_stride = std::int64_t{view.shape.n_group} * view.shape.key_dim;
  return {.q = q + head * group_stride,
          .row_stride = row_stride,
          .n_rows = n_rows,
          .n_visible = view.heads[static_cast<std::size_t>(head)].n_entries - n_rows + 1,
          .first_position = view.n_tokens - n_rows};
}

kernels::QueryRows rows_of_head(const LayerView& view, const StatisticsRows& rows, int head) {
  kernels::QueryRows of_head = group_rows(view, rows.q, rows.n_rows, head);
  if (!rows.sees_all) return of_head;
  of_head.n_visible = view.heads[static_cast<std::size_t>(head)].n_entries;
  of_head.first_position = view.n_tokens;
  return of_head;
}

kernels::QueryRows reference_rows(const LayerView& view, int head) {
  return rows_of_head(view, {.q = view.reference_q, .n_rows = view.n_reference_rows, .sees_all = true}, head);
}

kernels::HeadEntries slice_entries(const kernels::HeadEntries& entries, const kernels::AttentionShape& shape,
                                   std::int32_t first, std::int32_t last, std::vector<kernels::EntryRun>& runs) {
  runs.clear();
  std::int32_t begin = 0;
  for (const kernels::EntryRun& run : entries.runs) {
    const std::int32_t from = std::max(first - begin, 0);
    const std::int32_t to = std::min(last - begin, run.n_entries);
    if (from < to) runs.push_back(kernels::part_of(run, from, to - from, shape.key_dim, shape.value_dim));
    begin += run.n_entries;
  }
  return {.runs = runs, .n_entries = last - first};
}

std::int32_t count_below(const kernels::HeadEntries& entries, std::int32_t bound) {
  std::int32_t count = 0;
  for (const kernels::EntryRun& run : entries.runs) {
    const std::int32_t below = run.positions.count_below(bound, run.n_entries);
    count += below;
    if (below < run.n_entries) break;
  }
  return count;
}

int stored_rows(const LayerView& view, int n_rows) {
  const auto are_stored = [&](int n) {
    return std::all_of(view.heads.begin(), view.heads.end(), [&](const kernels::HeadEntries& head) {
      return head.n_entries - count_below(head, view.n_tokens - n) == n;
    });
  };
  // If so many are stored, fewer are, too.
  return *std::ranges::partition_point(std::views::iota(2, n_rows + 1), are_stored) - 1;
}

}  // namespace winnow
