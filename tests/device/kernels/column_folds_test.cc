#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "device/kernels/column_folds-inl.h"
#include "device/kernels/paged_heads.h"
#include "kernels/entries/rows.h"

namespace winnow::device {
namespace {

using simt::ThreadOrder;

struct Case {
  int dim = 64;
  EntryType type = EntryType::kF16;
  int n_group = 2;
  int n_rows = 40;
  std::vector<PagedHead> heads = {{100}};
  int n_window = 8;      // entries at the end that are no columns
  int first_column = 0;  // of every head that has so many
  bool sees_all = false;
  bool is_max = false;
  float soft_cap = 0;
};

// Returns queries of nine bits, which are one term of float16 and two of bfloat16.
AlignedRows round_queries(const Case& c, int n_head) {
  const auto n = static_cast<std::size_t>(c.n_rows * n_head * c.dim);
  AlignedRows q(n, 11);
  for (std::size_t i = 0; i < n; ++i) q.data()[i] = std::round(q.data()[i] * 64) / 64;
  return q;
}

void expect_reference(const Case& c) {
  SCOPED_TRACE(testing::Message() << "dim " << c.dim << " type " << entry_type_name(c.type) << " n_rows " << c.n_rows
                                  << " entries " << c.heads[0].n_entries << "@" << c.heads[0].first_slot
                                  << (c.sees_all ? " sees all" : "") << (c.is_max ? " max" : ""));
  const auto n_kv_head = static_cast<int>(c.heads.size()), n_head = n_kv_head * c.n_group;
  const LayerAttention layer = {.n_head = n_head,
                                .n_kv_head = n_kv_head,
                                .key_dim = c.dim,
                                .value_dim = 16,
                                .key_type = c.type,
                                .value_type = c.type,
                                .scale = 1.0F / std::sqrt(static_cast<float>(c.dim)),
                                .soft_cap = c.soft_cap};
  const PagedHeads heads(layer, c.heads, 7);
  const AlignedRows q = round_queries(c, n_head);
  const AlignedRows sums(static_cast<std::size_t>(c.n_rows * n_head), 5);
  std::vector<std::int32_t> first_columns, n_columns;
  for (const PagedHead& head : c.heads) {
    const int end = std::max(0, head.n_entries - c.n_window);
    first_columns.push_back(std::min(c.first_column, end));
    n_columns.push_back(end - first_columns.back());
  }
  const int stride = std::ranges::max(n_columns) + 3;
  // Folds the rows in parts. The first part overwrites the columns, the others add to them.
  const auto measure = [&](ThreadOrder order, std::vector<int> ends) {
    std::vector<float> columns(static_cast<std::size_t>(n_head * stride), std::nanf(""));
    int first = 0;
    for (const int end : ends) {
      std::vector<simt::Words4> workspace(fold_workspace_bytes(end - first, n_head, c.dim) / 16 + 1);
      simt::Queue queue(order);
      queue_column_folds(queue, {.layer = layer,
                                 .q = q.data() + first * n_head * c.dim,
                                 .log_sum_exp = sums.data() + first * n_head,
                                 .n_rows = end - first,
                                 .n_later = c.n_rows - end,
                                 .sees_all = c.sees_all,
                                 .is_max = c.is_max,
                                 .adds = first > 0,
                                 .heads = heads.tables(),
                                 .stride = stride,
                                 .first_columns = first_columns.data(),
                                 .n_columns = n_columns.data(),
                                 .columns = columns.data(),
                                 .workspace = reinterpret_cast<std::byte*>(workspace.data())});
      first = end;
    }
    return columns;
  };
  const std::vector<float> whole = measure(ThreadOrder::kAscending, {c.n_rows});
  const auto parts = c.n_rows > 3 ? measure(ThreadOrder::kRandom, {c.n_rows / 3, c.n_rows}) : whole;
  for (int h = 0; h < n_kv_head; ++h) {
    const kernels::AttentionShape shape = heads.shape().of_head(h);
    const int n_entries = c.heads[static_cast<std::size_t>(h)].n_entries, n = n_columns[static_cast<std::size_t>(h)];
    const int first = first_columns[static_cast<std::size_t>(h)];
    std::vector<float> key(static_cast<std::size_t>(c.dim));
    std::vector<double> expected(static_cast<std::size_t>(c.n_group * n));
    for (int i = 0; i < n; ++i) {
      kernels::load_entry(shape, heads.entries(h).runs[0], kernels::RowKind::kKey, first + i, key.data());
      for (int row = c.sees_all ? 0 : std::max(0, first + i - (n_entries - c.n_rows)); row < c.n_rows; ++row) {
        for (int g = 0; g < c.n_group; ++g) {
          const int at = row * n_head + h * c.n_group + g;
          double score = 0;
          for (int j = 0; j < c.dim; ++j) {
            score +=
                static_cast<double>(q.data()[at * c.dim + j]) * static_cast<double>(key[static_cast<std::size_t>(j)]);
          }
          score *= static_cast<double>(layer.scale);
          if (c.soft_cap != 0) {
            const auto cap = static_cast<double>(c.soft_cap);
            score = cap * std::tanh(score / cap);
          }
          const double weight = std::exp(score - static_cast<double>(sums.data()[at]));
          double& column = expected[static_cast<std::size_t>(g * n + i)];
          column = c.is_max ? std::max(column, weight) : column + weight;
        }
      }
    }
    for (int g = 0; g < c.n_group; ++g) {
      for (int i = 0; i < stride; ++i) {
        const auto at = static_cast<std::size_t>((h * c.n_group + g) * stride + i);
        if (i >= n) {
          ASSERT_TRUE(std::isnan(whole[at])) << "written behind the columns: " << i;
          continue;
        }
        const double wanted = expected[static_cast<std::size_t>(g * n + i)];
        ASSERT_NEAR(static_cast<double>(whole[at]), wanted, 1e-5 * wanted) << "head " << h << " column " << i;
        ASSERT_NEAR(static_cast<double>(parts[at]), wanted, 1e-5 * wanted) << "head " << h << " column " << i;
      }
    }
  }
}

TEST(ColumnFolds, MatchSumsInDouble) {
  for (const EntryType type : {EntryType::kF16, EntryType::kBF16}) {
    for (const bool is_max : {false, true}) {
      for (const int dim : {16, 64, 96, 128, 256}) expect_reference({.dim = dim, .type = type, .is_max = is_max});
      expect_reference({.type = type, .n_rows = 70, .heads = {{90, 5}, {300, 31}, {71}}, .is_max = is_max});
      expect_reference({.type = type, .n_rows = 33, .heads = {{200, 3}, {1}, {0}}, .sees_all = true, .is_max = is_max});
      expect_reference({.type = type, .n_rows = 150, .heads = {{150}}, .n_window = 0, .is_max = is_max});
      for (const int first : {1, 59, 64, 150}) {
        expect_reference(
            {.type = type, .n_rows = 70, .heads = {{90, 5}, {400, 31}}, .first_column = first, .is_max = is_max});
      }
      expect_reference({.type = type, .n_rows = 1, .heads = {{129, 30}}, .is_max = is_max});
      expect_reference({.type = type, .heads = {{100}}, .is_max = is_max, .soft_cap = 2.0F});
    }
  }
}

}  // namespace
}  // namespace winnow::device
