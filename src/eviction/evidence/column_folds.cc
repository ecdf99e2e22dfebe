#include "eviction/evidence/column_folds.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/aligned_bytes.h"
#include "eviction/evidence/query_rows.h"

namespace winnow {
namespace {

// There are fewer heads than threads, so a head's rows are split into this many parts. The number does not depend on
// that of threads, since the sums depend on it.
constexpr int kParts = 4;
constexpr int kBlockRows = 256;

// Folds rows [first, last) of a head into columns [n_group][range.size()].
void fold_rows(const LayerEvidence& evidence, kernels::ColumnFold fold, int head, const kernels::QueryRows& all,
               const float* log_sum_exp, int first, int last, kernels::EntryRange range, std::span<float> columns) {
  const LayerView& view = evidence.host_view();
  const int n_group = evidence.n_group();
  AlignedBytes scratch(kernels::window_statistics_scratch_bytes(view.shape, kBlockRows));
  std::vector<float> sums;
  for (; first < last; first += kBlockRows) {
    kernels::QueryRows rows = all;
    rows.q += first * rows.row_stride;
    rows.n_rows = std::min(kBlockRows, last - first);
    rows.n_visible += first;
    rows.first_position += first;
    sums.clear();
    for (int r = first; r < first + rows.n_rows; ++r) {
      const float* row = log_sum_exp + std::ptrdiff_t{r} * view.n_head + std::ptrdiff_t{head} * n_group;
      sums.insert(sums.end(), row, row + n_group);
    }
    kernels::fold_columns(fold, view.shape.of_head(head), view.heads[static_cast<std::size_t>(head)], rows, sums.data(),
                          range, columns.data(), scratch.span());
  }
}

}  // namespace

std::vector<kernels::EntryRange> prefix_ranges(const LayerEvidence& evidence) {
  std::vector<kernels::EntryRange> ranges;
  for (int h = 0; h < evidence.n_kv_head(); ++h) ranges.push_back({0, evidence.n_prefix(h)});
  return ranges;
}

std::vector<std::vector<float>> fold_columns(const LayerEvidence& evidence, kernels::ColumnFold fold,
                                             StatisticsRows rows, const float* log_sum_exp,
                                             std::span<const kernels::EntryRange> ranges) {
  if (EntryStatistics* statistics = evidence.layer().statistics; statistics != nullptr) {
    if (auto columns = statistics->fold(fold, rows, log_sum_exp, ranges)) return *std::move(columns);
    if (rows.q == nullptr) rows.q = statistics->kept_queries(rows.first_row, rows.n_rows);
  }
  const auto at = [](std::int64_t i) { return static_cast<std::size_t>(i); };
  std::vector<std::vector<float>> partial(at(evidence.n_kv_head()) * kParts);
  evidence.parallel(static_cast<int>(partial.size()), [&](int item) {
    const int head = item / kParts, part = item % kParts;
    const auto bound = [&](int p) { return static_cast<int>(std::int64_t{rows.n_rows} * p / kParts); };
    partial[at(item)].resize(at(evidence.n_group()) * at(ranges[at(head)].size()));
    fold_rows(evidence, fold, head, rows_of_head(evidence.layer(), rows, head), log_sum_exp, bound(part),
              bound(part + 1), ranges[at(head)], partial[at(item)]);
  });
  std::vector<std::vector<float>> columns(at(evidence.n_kv_head()));
  evidence.for_each_head([&](int h) {
    columns[at(h)] = std::move(partial[at(h) * kParts]);
    for (int part = 1; part < kParts; ++part) {
      const std::vector<float>& more = partial[at(h) * kParts + at(part)];
      for (std::size_t i = 0; i < more.size(); ++i) {
        float& column = columns[at(h)][i];
        column = fold == kernels::ColumnFold::kMax ? std::max(column, more[i]) : column + more[i];
      }
    }
  });
  return columns;
}

}  // namespace winnow
