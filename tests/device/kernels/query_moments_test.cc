#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "device/kernels/paged_heads.h"
#include "device/kernels/query_moments-inl.h"
#include "kernels/entries/rows.h"
#include "kernels/reference/reference.h"
#include "sanitizers.h"

namespace winnow::device {
namespace {

using simt::ThreadOrder;

TEST(QueryMoments, MatchTheReference) {
  for (const int dim : {16, 64, 80, 128, 256}) {
    for (const int n_rows : {1, 32, 75}) {
      SCOPED_TRACE(testing::Message() << "dim " << dim << " n_rows " << n_rows);
      constexpr int kHeads = 3;
      const AlignedRows q(static_cast<std::size_t>(n_rows * kHeads * dim), 4);
      const auto width = static_cast<std::size_t>(dim);
      // Sums the rows in parts. The first part overwrites the sums, the others add to them.
      std::vector<double> sum(kHeads * width, std::nan("")), outer(kHeads * width * width, std::nan(""));
      int first = 0;
      for (const int end : {(n_rows + 1) / 2, n_rows}) {
        if (end == first) continue;
        simt::Queue queue(ThreadOrder::kRandom);
        queue_query_moments(queue, {.q = q.data() + first * kHeads * dim,
                                    .n_rows = end - first,
                                    .n_head = kHeads,
                                    .key_dim = dim,
                                    .adds = first > 0,
                                    .sum = sum.data(),
                                    .outer = outer.data()});
        first = end;
      }
      for (std::size_t h = 0; h < kHeads; ++h) {
        const kernels::reference::MomentSums expected =
            kernels::reference::query_moments(q.data() + h * width, kHeads * dim, n_rows, dim);
        for (std::size_t i = 0; i < width; ++i) {
          ASSERT_NEAR(sum[h * width + i], expected.sum[i], 1e-9);
          for (std::size_t j = 0; j < width; ++j) {
            ASSERT_NEAR(outer[(h * width + i) * width + j], expected.outer[i * width + j], 1e-5 * n_rows);
          }
        }
      }
    }
  }
}

void expect_scores(EntryType type, int dim, const std::vector<PagedHead>& sizes) {
  SCOPED_TRACE(testing::Message() << entry_type_name(type) << " dim " << dim);
  constexpr int kGroup = 2;
  const auto n_kv_head = static_cast<int>(sizes.size()), n_head = n_kv_head * kGroup;
  const LayerAttention layer = {.n_head = n_head,
                                .n_kv_head = n_kv_head,
                                .key_dim = dim,
                                .value_dim = 16,
                                .key_type = type,
                                .value_type = type,
                                .scale = 1.0F / std::sqrt(static_cast<float>(dim))};
  const PagedHeads heads(layer, sizes, 3);
  const AlignedRows mean(static_cast<std::size_t>(n_head * dim), 5);
  AlignedRows covariance(static_cast<std::size_t>(n_head * dim * dim), 6, .3F);
  for (int h = 0; h < n_head; ++h) {
    float* const matrix = covariance.data() + h * dim * dim;
    for (int i = 0; i < dim; ++i) {
      for (int j = 0; j < i; ++j) matrix[i * dim + j] = matrix[j * dim + i];
    }
  }
  const int stride = heads.n_most() + 2;
  const auto measure = [&](ThreadOrder order) {
    std::vector<float> scores(static_cast<std::size_t>(n_head * stride), -1000.0F);
    simt::Queue queue(order);
    queue_expected_scores(queue, {.layer = layer,
                                  .heads = heads.tables(),
                                  .n_most = heads.n_most(),
                                  .stride = stride,
                                  .mean = mean.data(),
                                  .covariance = covariance.data(),
                                  .scores = scores.data()});
    return scores;
  };
  const std::vector<float> scores = measure(ThreadOrder::kAscending);
  if (!test::kHasSanitizers || dim <= 128) {
    EXPECT_EQ(measure(ThreadOrder::kRandom), scores);
  }
  std::vector<float> key(static_cast<std::size_t>(dim));
  for (int h = 0; h < n_head; ++h) {
    const float* const means = mean.data() + h * dim;
    const int n = sizes[static_cast<std::size_t>(h / kGroup)].n_entries;
    for (int e = 0; e < stride; ++e) {
      const float score = scores[static_cast<std::size_t>(h * stride + e)];
      if (e >= n) {
        ASSERT_EQ(score, -1000.0F) << "written behind the entries";
        continue;
      }
      const float* const k = key.data();
      kernels::load_entry(heads.shape(), heads.entries(h / kGroup).runs[0], kernels::RowKind::kKey, e, key.data());
      double linear = 0, form = 0;
      const float* row = covariance.data() + h * dim * dim;
      for (int i = 0; i < dim; ++i, row += dim) {
        linear += static_cast<double>(k[i]) * static_cast<double>(means[i]);
        double product = 0;
        for (int j = 0; j < dim; ++j) product += static_cast<double>(row[j]) * static_cast<double>(k[j]);
        form += static_cast<double>(k[i]) * product;
      }
      const auto scale = static_cast<double>(layer.scale);
      ASSERT_NEAR(static_cast<double>(score), scale * linear + scale * scale / 2 * form, 3e-5) << h << " " << e;
    }
  }
}

TEST(ExpectedScores, MatchSumsInDouble) {
  for (const EntryType type : {EntryType::kF16, EntryType::kBF16}) {
    for (const int dim : {16, 64, 80, 128, 256}) {
      if (test::kHasSanitizers && type == EntryType::kBF16 && dim > 80) continue;
      expect_scores(type, dim, {{70, 5}});
    }
    expect_scores(type, 32, {{1}, {33, 5}, {0}, {130, 31}, {64}});
  }
}

}  // namespace
}  // namespace winnow::device
