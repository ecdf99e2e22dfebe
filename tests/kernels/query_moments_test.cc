#include "kernels/statistics/query_moments.h"

#include <gtest/gtest.h>

#include "kernels/entries/rotated_codes.h"
#include "kernels/reference/reference.h"
#include "kernels/test_head.h"

namespace winnow::kernels {
namespace {

class QueryMoments : public EveryIsa {};

TEST_P(QueryMoments, AddUpAsTheReference) {
  for (const int head_dim : {8, 16, 64, 80, 96}) {
    for (const int n_rows : {0, 1, 7, 64, 65, 130}) {
      SCOPED_TRACE(testing::Message() << "head_dim " << head_dim << " n_rows " << n_rows);
      const AttentionShape shape = test_shape(2, head_dim, EntryType::kF32);
      const TestQueries queries(shape, n_rows, 5);
      const QueryRows rows = queries.rows(1, 0);
      const auto d = static_cast<std::size_t>(head_dim);
      std::vector<double> sum(d, 1.0), outer(d * d, 2.0);  // existing sums are kept
      add_query_moments(rows.q, rows.row_stride, n_rows, head_dim, sum, outer);
      const reference::MomentSums expected = reference::query_moments(rows.q, rows.row_stride, n_rows, head_dim);
      for (std::size_t i = 0; i < d; ++i) ASSERT_NEAR(sum[i], 1.0 + expected.sum[i], 1e-10) << i;
      for (std::size_t i = 0; i < d * d; ++i) {
        ASSERT_NEAR(outer[i], 2.0 + expected.outer[i], 5e-6 * (1 + n_rows)) << i;
      }
    }
  }
}

TEST_P(QueryMoments, ExpectedScoresMatchTheReference) {
  for (const EntryType type : entry_types()) {
    for (const int head_dim : {32, 96, 128}) {
      for (const int n_group : {1, 3, kMaxGroup}) {
        if (n_group == kMaxGroup && head_dim != 32) continue;
        for (const int n : {0, 1, 33, 70}) {
          SCOPED_TRACE(testing::Message() << entry_type_name(type) << " head_dim " << head_dim << " n " << n);
          const AttentionShape shape = test_shape(n_group, head_dim, type);
          const float origin = n == 70 ? 4.0F : 0.0F;
          const TestHead head(shape, {.n_entries = 70, .run_sizes = {32, 5}, .has_plain = true, .origin = origin}, 3);
          std::mt19937 random(9);
          std::normal_distribution<double> normal;
          const auto d = static_cast<std::size_t>(head_dim);
          std::vector<double> mean(static_cast<std::size_t>(n_group) * d), covariance(mean.size() * d);
          for (double& x : mean) x = normal(random);
          for (std::size_t g = 0; g < static_cast<std::size_t>(n_group); ++g) {
            for (std::size_t i = 0; i < d; ++i) {
              for (std::size_t j = 0; j <= i; ++j) {
                covariance[(g * d + i) * d + j] = covariance[(g * d + j) * d + i] = normal(random);
              }
            }
          }
          std::vector<double> out(static_cast<std::size_t>(n_group * n), std::nan(""));
          expected_scores(shape, head.entries(), n, mean, covariance, out);
          const std::vector<double> expected = reference::expected_scores(shape, head.entries(), n, mean, covariance);
          // Rotated codes are rotated back in float32; every other type is exact here.
          const double tolerance = origin > 0 ? 3e-3 : code_bits(type) > 0 ? 1e-5 : 1e-10;
          for (std::size_t i = 0; i < out.size(); ++i) ASSERT_NEAR(out[i], expected[i], tolerance) << i;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, QueryMoments, testing::ValuesIn(vector_isas()), isa_test_name);

}  // namespace
}  // namespace winnow::kernels
