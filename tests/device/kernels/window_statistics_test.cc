#include "kernels/statistics/window_statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "device/kernels/paged_heads.h"
#include "device/kernels/window_statistics-inl.h"
#include "kernels/reference/reference.h"

namespace winnow::device {
namespace {

using simt::ThreadOrder;

struct Case {
  int dim = 64;
  EntryType type = EntryType::kF16;
  int n_group = 2;
  int n_rows = 8;
  std::vector<PagedHead> heads = {{100}};
  int n_window = 8;  // entries at the end that are no columns
  bool sees_all = false;
  int window = 0;
  float soft_cap = 0;
  std::vector<float> sinks = {};
  float magnitude = 1.0F;

  LayerAttention layer() const {
    return {.n_head = n_group * static_cast<int>(heads.size()),
            .n_kv_head = static_cast<int>(heads.size()),
            .key_dim = dim,
            .value_dim = 16,
            .key_type = type,
            .value_type = type,
            .scale = 1.0F / std::sqrt(static_cast<float>(dim)),
            .soft_cap = soft_cap,
            .sliding_window = window,
            .sink_logits = sinks.empty() ? nullptr : sinks.data()};
  }
  int n_columns(int head) const { return std::max(0, heads[static_cast<std::size_t>(head)].n_entries - n_window); }
};

struct Result {
  int stride;
  std::vector<float> mean, m2, max, last, squares;  // [n_head][stride]
  std::vector<double> entropy;                      // [n_head]
};

Result measure(const Case& c, const LayerAttention& layer, const PagedHeads& heads, const float* q, ThreadOrder order) {
  const auto n_head = static_cast<std::size_t>(layer.n_head);
  Result result{.stride = heads.n_most() + 3};
  const std::vector<float> nothing(n_head * static_cast<std::size_t>(result.stride), std::nanf(""));
  result.mean = result.m2 = result.max = result.last = result.squares = nothing;
  result.entropy.assign(n_head, std::nan(""));
  std::vector<std::int32_t> n_columns;
  for (int h = 0; h < layer.n_kv_head; ++h) n_columns.push_back(c.n_columns(h));
  const std::size_t n_slices = n_head * kMaxStatisticsSlices;
  std::vector<float> row_max(n_slices * static_cast<std::size_t>(c.n_rows), std::nanf("")), row_sum(row_max);
  std::vector<double> slice_entropy(n_slices, std::nan(""));
  simt::Queue queue(order);
  queue_window_statistics(queue, {.layer = layer,
                                  .q = q,
                                  .n_rows = c.n_rows,
                                  .sees_all = c.sees_all,
                                  .heads = heads.tables(),
                                  .n_most = heads.n_most(),
                                  .stride = result.stride,
                                  .n_columns = n_columns.data(),
                                  .mean = result.mean.data(),
                                  .m2 = result.m2.data(),
                                  .max = result.max.data(),
                                  .last = result.last.data(),
                                  .squares = result.squares.data(),
                                  .entropy = result.entropy.data(),
                                  .row_max = row_max.data(),
                                  .row_sum = row_sum.data(),
                                  .slice_entropy = slice_entropy.data()});
  return result;
}

AlignedRows queries(const Case& c, const LayerAttention& layer) {
  return AlignedRows(static_cast<std::size_t>(c.n_rows * layer.n_head * layer.key_dim), 11);
}

kernels::QueryRows rows_of(const Case& c, const LayerAttention& layer, const float* q, int head) {
  const int n_entries = c.heads[static_cast<std::size_t>(head)].n_entries;
  return {.q = q + head * c.n_group * c.dim,
          .row_stride = layer.n_head * c.dim,
          .n_rows = c.n_rows,
          .n_visible = c.sees_all ? n_entries : n_entries - c.n_rows + 1,
          .first_position = c.sees_all ? n_entries : n_entries - c.n_rows};
}

constexpr double kTolerance = 1e-5;

void expect_close(float got, double expected, const char* what, int i, double tolerance = kTolerance) {
  ASSERT_NEAR(static_cast<double>(got), expected, tolerance * expected + 1e-30) << what << " " << i;
}

void expect_reference(const Case& c) {
  std::string sizes;
  for (const PagedHead& head : c.heads)
    sizes += " " + std::to_string(head.n_entries) + "@" + std::to_string(head.first_slot);
  SCOPED_TRACE(testing::Message() << "dim " << c.dim << " type " << entry_type_name(c.type) << " n_group " << c.n_group
                                  << " n_rows " << c.n_rows << " heads" << sizes << " n_window " << c.n_window
                                  << " window " << c.window);
  const LayerAttention layer = c.layer();
  const PagedHeads heads(layer, c.heads, 7, c.magnitude);
  const AlignedRows q = queries(c, layer);
  const Result result = measure(c, layer, heads, q.data(), ThreadOrder::kAscending);
  for (int h = 0; h < layer.n_kv_head; ++h) {
    const kernels::AttentionShape shape = heads.shape().of_head(h);
    const kernels::QueryRows rows = rows_of(c, layer, q.data(), h);
    const int n_columns = c.n_columns(h);
    const kernels::reference::WindowResult expected =
        kernels::reference::window_statistics(shape, heads.entries(h), rows, n_columns);
    for (int g = 0; g < c.n_group; ++g) {
      const auto head = static_cast<std::size_t>(h * c.n_group + g);
      for (int i = 0; i < result.stride; ++i) {
        const std::size_t at = head * static_cast<std::size_t>(result.stride) + static_cast<std::size_t>(i);
        if (i >= n_columns) {
          ASSERT_TRUE(std::isnan(result.mean[at])) << "written behind the columns: " << i;
          continue;
        }
        const auto from = static_cast<std::size_t>(g * n_columns + i);
        expect_close(result.mean[at], expected.mean[from], "mean", i);
        expect_close(result.max[at], expected.max[from], "max", i);
        expect_close(result.last[at], expected.last[from], "last", i);
        const double n = c.n_rows, mean = expected.mean[from], m2 = expected.m2[from], max = expected.max[from];
        expect_close(result.squares[at], m2 + n * mean * mean, "squares", i, 2 * kTolerance);
        // The tolerance of the weights changes a sum of squared differences by up to this.
        const double slack = kTolerance / 5 * n * max * std::sqrt(m2 / n);
        ASSERT_NEAR(static_cast<double>(result.m2[at]), m2,
                    kTolerance * m2 + slack + kTolerance * kTolerance / 100 * n * max * max + 1e-30)
            << "m2 " << i;
      }
      ASSERT_NEAR(result.entropy[head], expected.entropy[static_cast<std::size_t>(g)],
                  kTolerance * expected.entropy[static_cast<std::size_t>(g)] + 1e-30);
    }
  }
}

TEST(WindowStatistics, MatchTheReferenceForHeadSizes) {
  for (const EntryType type : {EntryType::kF16, EntryType::kBF16}) {
    for (const int dim : {16, 48, 64, 80, 96, 128, 160, 192, 256}) expect_reference({.dim = dim, .type = type});
  }
}

TEST(WindowStatistics, MatchTheReferenceForNumbersOfRowsAndColumns) {
  for (const int n_rows : {1, 2, 7, 8, 9, 16, 17, 31, 32, 33, 64, 70}) {
    for (const int n_prefix : {0, 1, 15, 63, 64, 65, 130}) {
      expect_reference({.n_group = 1, .n_rows = n_rows, .heads = {{n_prefix + n_rows}}, .n_window = n_rows});
    }
  }
}

// The entries form slices of four tiles, then of more.
TEST(WindowStatistics, MatchTheReferenceForManySlices) {
  for (const int n_entries : {255, 256, 257, 1000, 8200, 9000}) {
    expect_reference({.n_group = 1, .n_rows = 5, .heads = {{n_entries, 7}}, .n_window = 5});
  }
}

TEST(WindowStatistics, MatchTheReferenceForGroupsAndHeadsOfDifferentLengths) {
  for (const int n_group : {1, 3, 8}) {
    expect_reference({.n_group = n_group, .n_rows = 6, .heads = {{90, 5}, {6}, {300, 31}, {64}}, .n_window = 6});
  }
}

TEST(WindowStatistics, MatchTheReferenceForRowsThatSeeAllEntries) {
  for (const int window : {0, 20}) {
    expect_reference({.n_rows = 40, .heads = {{150, 3}}, .n_window = 0, .sees_all = true, .window = window});
  }
}

TEST(WindowStatistics, MatchTheReferenceForSlidingWindows) {
  for (const int window : {1, 7, 63, 64, 65, 500}) expect_reference({.heads = {{170, 9}}, .window = window});
}

TEST(WindowStatistics, MatchTheReferenceWithSoftCapAndSinks) {
  expect_reference({.soft_cap = 5.0F, .magnitude = 4.0F});
  expect_reference({.heads = {{100}, {80}}, .sinks = {0.5F, -3.0F, 9.0F, 30.0F}});
  expect_reference({.magnitude = 6.0F});
}

TEST(WindowStatistics, AgreeWithTheProcessors) {
  const Case c{.dim = 128, .n_rows = 32, .heads = {{400, 3}}, .n_window = 32};
  const LayerAttention layer = c.layer();
  const PagedHeads heads(layer, c.heads, 7);
  const AlignedRows q = queries(c, layer);
  const Result result = measure(c, layer, heads, q.data(), ThreadOrder::kAscending);
  const kernels::AttentionShape shape = heads.shape();
  const int n = c.n_columns(0);
  std::vector<float> mean(static_cast<std::size_t>(2 * n)), m2(mean), max(mean), last(mean);
  std::vector<double> entropy(2);
  kernels::TestScratch scratch(kernels::window_statistics_scratch_bytes(shape, c.n_rows));
  kernels::window_statistics(shape, heads.entries(0), rows_of(c, layer, q.data(), 0),
                             {n, mean.data(), m2.data(), max.data(), last.data(), entropy.data()}, scratch.span());
  // The processor's scores may have 16 bits of each operand.
  const double tolerance = 2e-4;
  for (int g = 0; g < 2; ++g) {
    for (int i = 0; i < n; ++i) {
      const auto from = static_cast<std::size_t>(g * n + i), at = static_cast<std::size_t>(g * result.stride + i);
      ASSERT_NEAR(result.mean[at], mean[from], tolerance * static_cast<double>(mean[from]));
      ASSERT_NEAR(result.m2[at], m2[from], 10 * tolerance * static_cast<double>(m2[from]));
      ASSERT_NEAR(result.max[at], max[from], tolerance * static_cast<double>(max[from]));
      ASSERT_NEAR(result.last[at], last[from], tolerance * static_cast<double>(last[from]));
    }
    ASSERT_NEAR(result.entropy[static_cast<std::size_t>(g)], entropy[static_cast<std::size_t>(g)], 1e-3);
  }
}

TEST(WindowStatistics, DoNotDependOnTheOrderOfThreads) {
  for (const int n_rows : {32, 50}) {
    const Case c{.n_rows = n_rows, .heads = {{600, 3}, {100}}, .n_window = n_rows};
    const LayerAttention layer = c.layer();
    const PagedHeads heads(layer, c.heads, 7);
    const AlignedRows q = queries(c, layer);
    const Result expected = measure(c, layer, heads, q.data(), ThreadOrder::kAscending);
    for (const ThreadOrder order : {ThreadOrder::kDescending, ThreadOrder::kRandom}) {
      const Result result = measure(c, layer, heads, q.data(), order);
      const auto expect_same = [](const std::vector<float>& a, const std::vector<float>& b) {
        EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0);  // NaNs among them
      };
      expect_same(result.mean, expected.mean);
      expect_same(result.m2, expected.m2);
      expect_same(result.max, expected.max);
      expect_same(result.last, expected.last);
      expect_same(result.squares, expected.squares);
      EXPECT_EQ(result.entropy, expected.entropy);
    }
  }
}

TEST(WindowStatistics, WriteWhatIsAskedForOnly) {
  const Case c{};
  const LayerAttention layer = c.layer();
  const PagedHeads heads(layer, c.heads, 7);
  const AlignedRows q = queries(c, layer);
  const Result all = measure(c, layer, heads, q.data(), ThreadOrder::kAscending);
  std::vector<float> mean(all.mean.size());
  const std::int32_t n_columns = c.n_columns(0);
  std::vector<float> row_max(static_cast<std::size_t>(layer.n_head * kMaxStatisticsSlices * c.n_rows)),
      row_sum(row_max);
  simt::Queue queue(ThreadOrder::kAscending);
  queue_window_statistics(queue, {.layer = layer,
                                  .q = q.data(),
                                  .n_rows = c.n_rows,
                                  .heads = heads.tables(),
                                  .n_most = heads.n_most(),
                                  .stride = all.stride,
                                  .n_columns = &n_columns,
                                  .mean = mean.data(),
                                  .row_max = row_max.data(),
                                  .row_sum = row_sum.data()});
  for (std::size_t i = 0; i < static_cast<std::size_t>(n_columns); ++i) EXPECT_EQ(mean[i], all.mean[i]);
}

}  // namespace
}  // namespace winnow::device
