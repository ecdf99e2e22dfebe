#include "kernels/statistics/window_statistics.h"

#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "kernels/attention/attention.h"
#include "kernels/attention/bf16_attention.h"
#include "kernels/entries/rotated_codes.h"
#include "kernels/reference/reference.h"
#include "kernels/statistics/bf16_split_scores.h"
#include "kernels/test_head.h"
#include "sanitizers.h"

namespace winnow::kernels {
namespace {

struct Outputs {
  explicit Outputs(int n_group, int n)
      : n_columns(n),
        mean(size(n_group)),
        m2(mean),
        max(mean),
        last(mean),
        entropy(static_cast<std::size_t>(n_group), -1.0) {}
  std::vector<float> size(int n_group) const {
    return std::vector<float>(static_cast<std::size_t>(n_group * n_columns), std::nanf(""));
  }
  ColumnStatistics view() { return {n_columns, mean.data(), m2.data(), max.data(), last.data(), entropy.data()}; }

  int n_columns;
  std::vector<float> mean, m2, max, last;
  std::vector<double> entropy;
};

// The tolerance is relative, with a floor far below any weight that matters.
void expect_close(const std::vector<float>& got, const std::vector<double>& expected, const char* what,
                  double tolerance = 1e-5) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(static_cast<double>(got[i]), expected[i], tolerance * expected[i] + 1e-30) << what << " " << i;
  }
}

struct Case {
  int n_entries = 100;
  int n_rows = 32;
  int n_columns = 68;
  std::vector<int> run_sizes = {32};
  int max_gap = 1;
  int n_visible = -1;  // of row 0; -1: the rows are the last entries
  float magnitude = 1.0F;
  float origin = 0.0F;
};

void expect_reference(const AttentionShape& shape, const Case& c) {
  SCOPED_TRACE(testing::Message() << "n_group " << shape.n_group << " head_dim " << shape.key_dim << " type "
                                  << entry_type_name(shape.key_type) << " n_entries " << c.n_entries << " n_rows "
                                  << c.n_rows << " n_columns " << c.n_columns << " window "
                                  << shape.spec.sliding_window);
  const TestHead head(shape,
                      {.n_entries = c.n_entries,
                       .run_sizes = c.run_sizes,
                       .max_gap = c.max_gap,
                       .magnitude = c.magnitude,
                       .has_plain = c.origin > 0,
                       .origin = c.origin},
                      static_cast<unsigned>(c.n_entries));
  const TestQueries queries(shape, c.n_rows, 21);
  const int n_visible = c.n_visible < 0 ? c.n_entries - c.n_rows + 1 : c.n_visible;
  const QueryRows rows = queries.rows(n_visible, head.last_position() - c.n_rows + 1);
  Outputs out(shape.n_group, c.n_columns);
  TestScratch scratch(window_statistics_scratch_bytes(shape, c.n_rows));
  window_statistics(shape, head.entries(), rows, out.view(), scratch.span());

  // Split scores use 16 bits of each operand.
  const double tolerance = prefers_split_scores(shape) ? 1e-4 : 1e-5;
  const reference::WindowResult expected = reference::window_statistics(shape, head.entries(), rows, c.n_columns);
  expect_close(out.mean, expected.mean, "mean", tolerance);
  expect_close(out.max, expected.max, "max", tolerance);
  Outputs alone(shape.n_group, c.n_columns);
  window_statistics(shape, head.entries(), rows, {c.n_columns, alone.mean.data(), nullptr, nullptr, nullptr, nullptr},
                    scratch.span());
  expect_close(alone.mean, expected.mean, "mean alone", tolerance);
  expect_close(out.last, expected.last, "last", tolerance);
  for (std::size_t i = 0; i < out.m2.size(); ++i) {
    // An error of a tenth of the tolerance in the weights changes a sum of squared differences by twice as much.
    const double slack = tolerance / 5 * c.n_rows * expected.max[i] * std::sqrt(expected.m2[i] / c.n_rows);
    ASSERT_NEAR(static_cast<double>(out.m2[i]), expected.m2[i],
                tolerance * expected.m2[i] + slack +
                    tolerance * tolerance / 100 * c.n_rows * expected.max[i] * expected.max[i] + 1e-30)
        << "m2 " << i;
  }
  for (std::size_t g = 0; g < out.entropy.size(); ++g) {
    ASSERT_NEAR(out.entropy[g], expected.entropy[g], tolerance * expected.entropy[g] + 1e-30);
  }
}

class WindowStatistics : public EveryIsa {};

TEST_P(WindowStatistics, MatchesTheReferenceForHeadSizesAndGroups) {
  for (const int head_dim : {8, 16, 64, 80, 96, 128, 256, 512}) {
    for (const int n_group : {1, 3, 7}) {
      expect_reference(test_shape(n_group, head_dim, EntryType::kF16),
                       {.n_entries = 150, .n_rows = 8, .n_columns = 142});
    }
  }
  expect_reference(test_shape(16, 64, EntryType::kF32), {.n_entries = 80, .n_rows = 8, .n_columns = 72});
}

TEST_P(WindowStatistics, MatchesTheReferenceForLargeGroups) {
  for (const EntryType type : {EntryType::kF32, EntryType::kF16}) {
    expect_reference(test_shape(33, 64, type), {.n_entries = 80, .n_rows = 5, .n_columns = 75});
    expect_reference(test_shape(kMaxGroup, kMaxHeadDim, type), {.n_entries = 40, .n_rows = 3, .n_columns = 37});
  }
}

TEST_P(WindowStatistics, MatchesTheReferenceForWindowsAndLengths) {
  const AttentionShape shape = test_shape(2, 64, EntryType::kF16);
  for (const int n_rows : {1, 2, 5, 6, 8, 16, 31, 32, 64}) {
    for (const int n_prefix : {0, 1, 15, 16, 17, 33, 127, 128, 129, 257}) {
      expect_reference(shape, {.n_entries = n_prefix + n_rows, .n_rows = n_rows, .n_columns = n_prefix});
    }
  }
}

TEST_P(WindowStatistics, ColumnsMayReachIntoTheWindowOrStopEarly) {
  const AttentionShape shape = test_shape(3, 64, EntryType::kF16);
  for (const int n_columns : {0, 1, 40, 150, 200}) {
    expect_reference(shape, {.n_entries = 200, .n_rows = 32, .n_columns = n_columns});
  }
}

TEST_P(WindowStatistics, MatchesTheReferenceForEveryEntryType) {
  for (const EntryType type : entry_types()) {
    expect_reference(test_shape(3, 64, type), {.n_entries = 160, .n_rows = 16, .n_columns = 144});
  }
}

TEST_P(WindowStatistics, KeysMayBeStoredLessAnOrigin) {
  for (const EntryType type : entry_types()) {
    expect_reference(test_shape(3, 64, type), {.n_entries = 160, .n_rows = 16, .n_columns = 144, .origin = 1.0F});
  }
}

TEST_P(WindowStatistics, CapsScoresAndGivesWeightToSinks) {
  const std::vector<float> sinks = {-3.0F, 2.0F};
  for (const EntryType type : {EntryType::kF32, EntryType::kF16}) {
    for (const float soft_cap : {0.0F, 0.5F, 30.0F}) {
      for (const bool has_sinks : {false, true}) {
        AttentionShape shape = test_shape(2, 64, type);
        shape.spec.soft_cap = soft_cap;
        shape.spec.sink_logits = has_sinks ? sinks.data() : nullptr;
        expect_reference(shape, {.n_entries = 300, .n_rows = 16, .n_columns = 284});
        shape.spec.sliding_window = 40;
        expect_reference(shape, {.n_entries = 300, .n_rows = 16, .n_columns = 284});
      }
    }
  }
}

TEST_P(WindowStatistics, HidesWhatTheSlidingWindowHides) {
  for (const int window : {1, 10, 40, 128, 1000}) {
    AttentionShape shape = test_shape(2, 64, EntryType::kF16);
    shape.spec.sliding_window = window;
    expect_reference(shape, {.n_entries = 300, .n_rows = 16, .n_columns = 284, .max_gap = 2});
  }
}

TEST_P(WindowStatistics, RowsMaySeeFewerEntriesThanThereAre) {
  expect_reference(test_shape(2, 64, EntryType::kF16),
                   {.n_entries = 200, .n_rows = 8, .n_columns = 200, .n_visible = 60});
  // A row that sees no entries counts as zeros.
  expect_reference(test_shape(2, 64, EntryType::kF16),
                   {.n_entries = 20, .n_rows = 4, .n_columns = 20, .n_visible = -0});
}

TEST_P(WindowStatistics, PartsAddUpToTheWhole) {
  AttentionShape shape = test_shape(3, 64, EntryType::kF16);
  for (const int window : {0, 90}) {
    shape.spec.sliding_window = window;
    const TestHead head(shape, {.n_entries = 300, .run_sizes = {32}}, 1);
    const TestQueries queries(shape, 16, 2);
    const QueryRows rows = queries.rows(285, 284);
    TestScratch scratch(window_statistics_scratch_bytes(shape, 16));
    Outputs whole(3, 284), parts(3, 284);
    window_statistics(shape, head.entries(), rows, whole.view(), scratch.span());
    const std::vector<std::int32_t> ends = {0, 1, 64, 130, 200, 300};
    std::vector<RowSum> sums(3 * 16), part(sums.size());
    for (std::size_t i = 1; i < ends.size(); ++i) {
      window_row_sums(shape, head.entries(), rows, {ends[i - 1], ends[i]}, part, scratch.span());
      merge_row_sums(part, sums);
    }
    std::vector<double> entropy(3);
    for (std::size_t i = 1; i < ends.size(); ++i) {
      window_columns(shape, head.entries(), rows, sums, {ends[i - 1], std::min(ends[i], 284)}, parts.view(),
                     scratch.span());
      for (std::size_t g = 0; g < 3; ++g) entropy[g] += parts.entropy[g];
    }
    for (std::size_t i = 0; i < whole.mean.size(); ++i) {
      ASSERT_NEAR(parts.mean[i], whole.mean[i], 1e-6 * whole.mean[i]);
      ASSERT_NEAR(parts.m2[i], whole.m2[i], 1e-5 * whole.m2[i]);
      ASSERT_NEAR(parts.max[i], whole.max[i], 1e-6 * whole.max[i]);
      ASSERT_NEAR(parts.last[i], whole.last[i], 1e-6 * whole.last[i]);
    }
    for (std::size_t g = 0; g < 3; ++g) ASSERT_NEAR(entropy[g], whole.entropy[g], 1e-6 * whole.entropy[g]);
  }
}

TEST_P(WindowStatistics, SharpAttentionKeepsItsAccuracy) {
  // With scores of some tens the weights span more than float32's range of exponents.
  expect_reference(test_shape(2, 64, EntryType::kF32),
                   {.n_entries = 140, .n_rows = 8, .n_columns = 132, .magnitude = 4.0F});
}

TEST_P(WindowStatistics, UnwantedOutputsStayAway) {
  const AttentionShape shape = test_shape(2, 64, EntryType::kF16);
  const TestHead head(shape, {.n_entries = 100}, 3);
  const TestQueries queries(shape, 8, 4);
  const QueryRows rows = queries.rows(93, 92);
  Outputs all(2, 92);
  TestScratch scratch(window_statistics_scratch_bytes(shape, 8));
  window_statistics(shape, head.entries(), rows, all.view(), scratch.span());
  std::vector<float> mean(2 * 92);
  window_statistics(shape, head.entries(), rows, {92, mean.data(), nullptr, nullptr, nullptr, nullptr}, scratch.span());
  for (std::size_t i = 0; i < mean.size(); ++i) ASSERT_NEAR(mean[i], all.mean[i], 1e-6F * all.mean[i]);
  std::vector<float> last(2 * 92);
  window_statistics(shape, head.entries(), rows, {92, nullptr, nullptr, nullptr, last.data(), nullptr}, scratch.span());
  EXPECT_EQ(last, all.last);
}

TEST_P(WindowStatistics, LargeScoresStayFinite) {
  for (const float magnitude : {1e3F, 1e18F, 1e37F}) {
    const AttentionShape shape = test_shape(2, 64, EntryType::kF32);
    const TestHead head(shape, {.n_entries = 150, .magnitude = magnitude}, 5);
    const TestQueries queries(shape, 16, 6, 100.0F);
    Outputs out(2, 134);
    TestScratch scratch(window_statistics_scratch_bytes(shape, 16));
    window_statistics(shape, head.entries(), queries.rows(135, 134), out.view(), scratch.span());
    for (const auto* statistic : {&out.mean, &out.m2, &out.max, &out.last}) {
      for (const float x : *statistic) ASSERT_TRUE(std::isfinite(x)) << "keys of magnitude " << magnitude;
    }
    for (const double x : out.entropy) ASSERT_TRUE(std::isfinite(x)) << "keys of magnitude " << magnitude;
  }
}

// The numbers that the folds of all rows of a prompt must give, in double precision.
struct FoldedReference {
  std::vector<double> log_sum_exp;  // of every 17th row and head
  std::vector<double> sums, squares;
  std::vector<double> maxima;

  FoldedReference(const AttentionShape& shape, const TestHead& head, const QueryRows& rows, int n_tokens)
      : sums(reference::column_sums(shape, head.entries(), rows, n_tokens)) {
    const reference::WindowResult window = reference::window_statistics(shape, head.entries(), rows, n_tokens);
    maxima = window.max;
    for (std::size_t i = 0; i < window.m2.size(); ++i) {
      squares.push_back(window.m2[i] + n_tokens * window.mean[i] * window.mean[i]);
    }
    for (int i = 0; i < n_tokens * shape.n_group; i += 17) {
      const auto [row, g] = std::div(i, shape.n_group);
      log_sum_exp.push_back(reference::weights(shape, head.entries(), rows, row, g).log_sum_exp);
    }
  }
};

// Returns the reference of entries that every instruction set stores alike, which is computed once for all of them.
const FoldedReference& folded_reference(const AttentionShape& shape, const TestHead& head, const QueryRows& rows,
                                        int n_tokens) {
  static std::map<std::tuple<EntryType, int, int, int, float>, FoldedReference> known;
  const auto key = std::tuple(shape.key_type, shape.n_group, n_tokens, shape.spec.sliding_window, shape.spec.soft_cap);
  return known.try_emplace(key, shape, head, rows, n_tokens).first->second;
}

void expect_folded_columns(EntryType type, int n_group, int n_tokens, float origin = 0.0F) {
  for (const auto& [window, soft_cap] : {std::pair{0, 0.0F}, {50, 0.0F}, {0, 1.5F}}) {
    AttentionShape shape = test_shape(n_group, 64, type);
    shape.spec.sliding_window = window;
    shape.spec.soft_cap = soft_cap;
    const TestHead head(
        shape, {.n_entries = n_tokens, .run_sizes = {n_tokens, 32}, .has_plain = origin > 0, .origin = origin}, 8);
    const TestQueries queries(shape, n_tokens, 9);
    const QueryRows rows = queries.rows(1, 0);
    const auto n_sums = static_cast<std::size_t>(n_tokens * n_group);
    std::vector<float> out(n_sums * 64);
    std::vector<float> log_sum_exp(n_sums);
    TestScratch scratch(causal_attention_scratch_bytes(shape));
    causal_attention(shape, head.entries(), rows, {out.data(), n_group * 64, log_sum_exp.data()}, scratch.span());
    const bool is_stored_alike = code_bits(type) == 0 && origin == 0.0F;
    const FoldedReference expected =
        is_stored_alike ? folded_reference(shape, head, rows, n_tokens) : FoldedReference(shape, head, rows, n_tokens);

    std::vector<float> own_sums(n_sums);
    TestScratch sums_scratch(window_statistics_scratch_bytes(shape, n_tokens));
    row_log_sum_exps(shape, head.entries(), rows, own_sums.data(), sums_scratch.span());
    for (std::size_t i = 0; i < n_sums; ++i) {
      ASSERT_NEAR(own_sums[i], log_sum_exp[i], 2e-4) << i;  // from the same products
      if (i % 17 != 0) continue;
      ASSERT_NEAR(own_sums[i], expected.log_sum_exp[i / 17], prefers_bf16_attention(shape) ? 2e-2 : 1e-5) << i;
    }

    // The rows come in blocks, as in the engine.
    std::vector<float> sums(n_sums, 0.0F);
    std::vector<float> squares(n_sums, 0.0F);
    std::vector<float> maxima(n_sums, 0.0F);
    const EntryRange part = {n_tokens / 3, n_tokens - 5};
    std::vector<float> maxima_of_part(static_cast<std::size_t>(part.size() * n_group), 0.0F);
    TestScratch window_scratch(window_statistics_scratch_bytes(shape, 64));
    for (int first = 0; first < n_tokens; first += 64) {
      QueryRows some = rows;
      some.q += first * rows.row_stride;
      some.n_rows = std::min(64, n_tokens - first);
      some.n_visible += first;
      some.first_position += first;
      for (const auto& [fold, columns] :
           {std::pair{ColumnFold::kSum, &sums}, {ColumnFold::kSquares, &squares}, {ColumnFold::kMax, &maxima}}) {
        fold_columns(fold, shape, head.entries(), some, log_sum_exp.data() + first * n_group, {0, n_tokens},
                     columns->data(), window_scratch.span());
      }
      fold_columns(ColumnFold::kMax, shape, head.entries(), some, log_sum_exp.data() + first * n_group, part,
                   maxima_of_part.data(), window_scratch.span());
    }
    for (int g = 0; g < n_group; ++g) {
      for (int i = part.first; i < part.last; ++i) {
        ASSERT_EQ(maxima_of_part[g * part.size() + i - part.first], maxima[g * n_tokens + i]) << i;
      }
    }
    const double tolerance = prefers_bf16_attention(shape) ? 2e-2 : 1e-5;
    expect_close(sums, expected.sums, "column sum", tolerance);
    expect_close(maxima, expected.maxima, "column maximum", tolerance);
    expect_close(squares, expected.squares, "column of squares", tolerance);
    // Scores and log-sum-exps come from the same products, so every row still spreads a weight of 1.
    for (int g = 0; g < n_group; ++g) {
      const auto first = sums.begin() + static_cast<std::ptrdiff_t>(g) * n_tokens;
      EXPECT_NEAR(std::accumulate(first, first + n_tokens, 0.0), n_tokens, 2e-4 * n_tokens);
    }
  }
}

TEST_P(WindowStatistics, FoldedColumnsOfAPromptMatchTheReference) {
  constexpr int kTokens = test::kIsSlow ? 90 : 210;  // quadratic time in the references; blocks have 64 rows
  for (const EntryType type : {EntryType::kF32, EntryType::kF16}) {
    expect_folded_columns(type, 3, kTokens);
    if (!test::kIsSlow || type == EntryType::kF16) expect_folded_columns(type, kMaxGroup, 70);
  }
  for (const EntryType type : {EntryType::kF16, EntryType::kR4}) expect_folded_columns(type, 3, kTokens, 1.0F);
}

INSTANTIATE_TEST_SUITE_P(Isa, WindowStatistics, testing::ValuesIn(bf16_isas()), isa_test_name);

}  // namespace
}  // namespace winnow::kernels
