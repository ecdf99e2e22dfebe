#include <gtest/gtest.h>

#include <tuple>

#include "kernels/attention/attention.h"
#include "kernels/attention/bf16_attention.h"
#include "kernels/reference/reference.h"
#include "kernels/test_head.h"

namespace winnow::kernels {
namespace {

struct Case {
  int n_visible = 1;  // of row 0
  int n_rows = 1;
  std::vector<int> run_sizes = {};
  int max_gap = 1;
  float magnitude = 1.0F;
  double tolerance = 2e-5;
  bool has_plain = false;
  float origin = 0.0F;
};

// How far products of bfloat16 may move outputs and log-sum-exps here, where numbers and scores are about 1.
constexpr double kBf16Tolerance = 2e-2;

// Runs the kernel and the reference on the same random head and compares everything they put out.
void expect_reference(const AttentionShape& shape, const Case& c) {
  SCOPED_TRACE(testing::Message() << "n_group " << shape.n_group << " head_dim " << shape.key_dim << " type "
                                  << entry_type_name(shape.key_type) << " n_visible " << c.n_visible << " n_rows "
                                  << c.n_rows << " window " << shape.spec.sliding_window);
  const int n_entries = std::max(0, c.n_visible + c.n_rows - 1);
  const TestHead head(shape,
                      {.n_entries = n_entries,
                       .run_sizes = c.run_sizes,
                       .max_gap = c.max_gap,
                       .magnitude = c.magnitude,
                       .has_plain = c.has_plain,
                       .origin = c.origin},
                      static_cast<unsigned>(n_entries * 31 + shape.key_dim));
  const TestQueries queries(shape, c.n_rows, 7);
  const QueryRows rows = queries.rows(c.n_visible, head.last_position() - c.n_rows + 1);

  const std::int64_t stride = shape.n_group * shape.value_dim + 5;
  std::vector<float> out(static_cast<std::size_t>(stride * c.n_rows), 99.0F);
  std::vector<float> log_sum_exp(static_cast<std::size_t>(c.n_rows * shape.n_group), 99.0F);
  TestScratch scratch(causal_attention_scratch_bytes(shape));
  causal_attention(shape, head.entries(), rows, {out.data(), stride, log_sum_exp.data()}, scratch.span());

  const bool rounded = prefers_bf16_attention(shape);
  const double tolerance = rounded ? kBf16Tolerance : c.tolerance;
  const reference::CausalResult expected = reference::causal_attention(shape, head.entries(), rows);
  const auto width = static_cast<std::size_t>(shape.n_group * shape.value_dim);
  for (std::size_t r = 0; r < static_cast<std::size_t>(c.n_rows); ++r) {
    const float* row = out.data() + r * static_cast<std::size_t>(stride);
    for (std::size_t i = 0; i < width; ++i) {
      ASSERT_NEAR(static_cast<double>(row[i]), expected.out[r * width + i], tolerance)
          << "row " << r << " number " << i;
    }
    for (std::size_t i = width; i < static_cast<std::size_t>(stride); ++i)
      ASSERT_EQ(row[i], 99.0F) << "wrote past a row";
  }
  for (std::size_t i = 0; i < log_sum_exp.size(); ++i) {
    const double lse = expected.log_sum_exp[i];
    if (std::isinf(lse)) {
      ASSERT_EQ(static_cast<double>(log_sum_exp[i]), lse);
    } else {
      ASSERT_NEAR(static_cast<double>(log_sum_exp[i]), lse, rounded ? kBf16Tolerance : 1e-5 + 1e-6 * std::abs(lse));
    }
  }
}

class CausalAttention : public EveryIsa {};

TEST_P(CausalAttention, MatchesTheReferenceForHeadSizesAndGroups) {
  for (const int head_dim : {16, 48, 64, 80, 96, 128, 256, 512}) {
    for (const int n_group : {1, 3, 8}) {
      expect_reference(test_shape(n_group, head_dim, EntryType::kF16),
                       {.n_visible = 131, .n_rows = 7, .run_sizes = {32}});
    }
  }
  expect_reference(test_shape(16, 256, EntryType::kF32), {.n_visible = 20, .n_rows = 64});
}

TEST_P(CausalAttention, MatchesTheReferenceForLargeGroups) {
  for (const EntryType type : {EntryType::kF32, EntryType::kF16}) {
    expect_reference(test_shape(24, 64, type), {.n_visible = 40, .n_rows = 9, .run_sizes = {32}});
    expect_reference(test_shape(64, 128, type), {.n_visible = 40, .n_rows = 9});
    expect_reference(test_shape(kMaxGroup, kMaxHeadDim, type), {.n_visible = 20, .n_rows = 17, .run_sizes = {7}});
  }
}

TEST_P(CausalAttention, MatchesTheReferenceForEveryEntryType) {
  for (const EntryType type : entry_types()) {
    expect_reference(test_shape(3, 64, type), {.n_visible = 40, .n_rows = 30, .run_sizes = {32, 7}});
  }
  AttentionShape mixed = test_shape(2, 96, EntryType::kF16);
  mixed.value_type = EntryType::kQ8_0;
  expect_reference(mixed, {.n_visible = 33, .n_rows = 9});
}

TEST_P(CausalAttention, MatchesTheReferenceForEveryLength) {
  const AttentionShape shape = test_shape(3, 64, EntryType::kF16);
  for (const int n_visible : {0, 1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 127, 128, 129, 257}) {
    for (const int n_rows : {1, 2, 5, 33}) expect_reference(shape, {.n_visible = n_visible, .n_rows = n_rows});
  }
  // A whole prompt, and more rows than a block takes.
  for (const int n_rows : {64, 65, 200}) expect_reference(shape, {.n_visible = 1, .n_rows = n_rows, .run_sizes = {32}});
}

TEST_P(CausalAttention, Bf16ProductsOfEveryShape) {
  for (const int head_dim : {32, 48, 64, 80, 96, 128, 256, 512}) {
    for (int n_group = 1; n_group <= 16; ++n_group) {
      expect_reference(test_shape(n_group, head_dim, EntryType::kF16),
                       {.n_visible = 60, .n_rows = 8 + n_group % 3, .run_sizes = {32}});
    }
  }
  for (const int n_visible : {1, 200, 255, 256, 257, 500}) {
    expect_reference(test_shape(3, 64, EntryType::kF16), {.n_visible = n_visible, .n_rows = 70, .run_sizes = {32}});
    expect_reference(test_shape(1, 128, EntryType::kQ8_0), {.n_visible = n_visible, .n_rows = 9});
  }
}

// bfloat16 holds these keys, values and scaled queries exactly. Only the softmax weights are rounded, and log-sum-exps
// do not depend on them.
TEST_P(CausalAttention, NothingButTheSoftmaxWeightsIsRoundedTwice) {
  constexpr int kRows = 90;
  constexpr int kEntries = 700;
  AttentionShape shape = test_shape(3, 64, EntryType::kBF16);
  shape.spec.scale = std::log(2.0F) / 8.0F;  // times log2(e): a power of two
  const TestHead head(shape, {.n_entries = kEntries, .run_sizes = {32}}, 21);
  const TestQueries queries(shape, kRows, 22);
  std::vector<float> q(static_cast<std::size_t>(kRows * 3 * 64));
  const QueryRows random = queries.rows(kEntries - kRows + 1, kEntries - kRows);
  for (std::size_t i = 0; i < q.size(); ++i) {
    q[i] = std::round(random.q[i / 192 * static_cast<std::size_t>(random.row_stride) + i % 192] * 16.0F) / 16.0F;
  }
  QueryRows rows = random;
  rows.q = q.data();
  rows.row_stride = 3 * 64;
  std::vector<float> out(q.size()), log_sum_exp(kRows * 3);
  TestScratch scratch(causal_attention_scratch_bytes(shape));
  causal_attention(shape, head.entries(), rows, {out.data(), 3 * 64, log_sum_exp.data()}, scratch.span());
  const reference::CausalResult expected = reference::causal_attention(shape, head.entries(), rows);
  for (std::size_t i = 0; i < log_sum_exp.size(); ++i) {
    ASSERT_NEAR(static_cast<double>(log_sum_exp[i]), expected.log_sum_exp[i], 2e-5);
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    ASSERT_NEAR(static_cast<double>(out[i]), expected.out[i], 1e-3) << "number " << i;
  }
}

TEST_P(CausalAttention, SplitRunsGiveTheSameBitsAsOneRun) {
  const AttentionShape shape = test_shape(3, 64, EntryType::kF16);
  const TestQueries queries(shape, 40, 3);
  std::vector<std::vector<float>> outputs;
  for (const std::vector<int>& sizes : {std::vector<int>{}, {32}, {1}, {5, 1, 64, 0, 13}}) {
    const TestHead head(shape, {.n_entries = 300, .run_sizes = sizes}, 11);
    std::vector<float>& out = outputs.emplace_back(static_cast<std::size_t>(40 * 3 * 64));
    TestScratch scratch(causal_attention_scratch_bytes(shape));
    causal_attention(shape, head.entries(), queries.rows(261, 260), {out.data(), 3 * 64, nullptr}, scratch.span());
    EXPECT_EQ(out, outputs[0]);
  }
}

TEST_P(CausalAttention, HidesWhatTheSlidingWindowHides) {
  for (const int window : {1, 2, 16, 100, 128, 1000}) {
    AttentionShape shape = test_shape(2, 64, EntryType::kF16);
    shape.spec.sliding_window = window;
    expect_reference(shape, {.n_visible = 1, .n_rows = 150, .run_sizes = {32}});
    expect_reference(shape, {.n_visible = 290, .n_rows = 20, .run_sizes = {32}, .max_gap = 5});
  }
}

TEST_P(CausalAttention, KeysAndValuesMayHaveDifferentSizes) {
  for (const EntryType type : {EntryType::kF32, EntryType::kF16, EntryType::kQ8_0}) {
    for (const auto& [key_dim, value_dim] : {std::pair{192, 128}, {64, 256}, {512, 512}, {96, 32}, {48, 80}}) {
      if (type == EntryType::kQ8_0 && key_dim % 32 != 0) continue;
      AttentionShape shape = test_shape(3, key_dim, type);
      shape.value_dim = value_dim;
      for (const int n_rows : {5, 40}) expect_reference(shape, {.n_visible = 100, .n_rows = n_rows, .run_sizes = {32}});
    }
  }
}

TEST_P(CausalAttention, CapsScoresAndGivesWeightToSinks) {
  const std::vector<float> sinks = {-3.0F, 0.5F, 40.0F};
  for (const EntryType type : {EntryType::kF32, EntryType::kF16}) {
    for (const float soft_cap : {0.0F, 0.5F, 30.0F}) {
      for (const bool has_sinks : {false, true}) {
        AttentionShape shape = test_shape(3, 64, type);
        shape.spec.soft_cap = soft_cap;
        shape.spec.sink_logits = has_sinks ? sinks.data() : nullptr;
        expect_reference(shape, {.n_visible = 1, .n_rows = 150, .run_sizes = {32}});
        expect_reference(shape, {.n_visible = 0, .n_rows = 3});  // the first row sees only the sinks
        shape.spec.sliding_window = 20;
        expect_reference(shape, {.n_visible = 100, .n_rows = 30, .run_sizes = {32}});
      }
    }
  }
}

TEST_P(CausalAttention, KeysMayBeStoredLessAnOrigin) {
  const std::vector<float> sinks = {-3.0F, 8.0F, 0.5F};
  for (const EntryType type : entry_types()) {
    for (const std::vector<int>& run_sizes : {std::vector{32, 7}, {200}}) {
      for (const bool has_plain : {false, true}) {
        AttentionShape shape = test_shape(3, 64, type);
        if (has_plain) shape.spec.sink_logits = sinks.data();
        Case few{.n_visible = 100,
                 .n_rows = 3,
                 .run_sizes = run_sizes,
                 .tolerance = 1e-4,
                 .has_plain = has_plain,
                 .origin = 10.0F};
        expect_reference(shape, few);
        Case many = few;
        many.n_rows = 50;
        expect_reference(shape, many);
        // Capped scores are computed as a whole, so they are only as exact as bfloat16 is for origin and key together.
        shape.spec.soft_cap = 30.0F;
        few.origin = many.origin = 1.0F;
        expect_reference(shape, few);
        expect_reference(shape, many);
      }
    }
  }
}

// A row that is read alone, after a prompt's entries, gets the same bits as when all rows are read at once.
TEST_P(CausalAttention, ARowsBitsDoNotDependOnTheRowsReadWithIt) {
  for (const EntryType type : {EntryType::kF32, EntryType::kF16, EntryType::kQ8_0}) {
    const AttentionShape shape = test_shape(3, 64, type);
    const TestHead head(shape, {.n_entries = 200, .run_sizes = {32}}, 5);
    const TestQueries queries(shape, 41, 6);
    const QueryRows rows = queries.rows(160, 159);
    const std::int64_t stride = 3 * 64;
    TestScratch scratch(causal_attention_scratch_bytes(shape));
    std::vector<float> together(static_cast<std::size_t>(41 * stride));
    causal_attention(shape, head.entries(), rows, {together.data(), stride, nullptr}, scratch.span());
    for (const auto& [first, n] : {std::pair{0, 1}, {40, 1}, {33, 7}, {3, 33}}) {
      QueryRows some = rows;
      some.q += first * rows.row_stride;
      some.n_rows = n;
      some.n_visible += first;
      some.first_position += first;
      std::vector<float> apart(static_cast<std::size_t>(n * stride));
      causal_attention(shape, head.entries(), some, {apart.data(), stride, nullptr}, scratch.span());
      EXPECT_TRUE(std::equal(apart.begin(), apart.end(), together.begin() + first * stride))
          << entry_type_name(type) << ": " << n << " rows from " << first << " on";
    }
  }
}

TEST_P(CausalAttention, EntriesBehindTheLastRowAreNotSeen) {
  const AttentionShape shape = test_shape(2, 64, EntryType::kF32);
  const TestHead head(shape, {.n_entries = 200, .run_sizes = {32}}, 5);
  const TestQueries queries(shape, 4, 6);
  const QueryRows rows = queries.rows(50, 49);
  std::vector<float> out(4 * 2 * 64);
  TestScratch scratch(causal_attention_scratch_bytes(shape));
  causal_attention(shape, head.entries(), rows, {out.data(), 2 * 64, nullptr}, scratch.span());
  const reference::CausalResult expected = reference::causal_attention(shape, head.entries(), rows);
  for (std::size_t i = 0; i < out.size(); ++i) ASSERT_NEAR(static_cast<double>(out[i]), expected.out[i], 2e-5);
}

TEST_P(CausalAttention, LargeScoresStayFinite) {
  for (const float magnitude : {1e3F, 1e18F, 1e37F}) {
    const AttentionShape shape = test_shape(2, 64, EntryType::kF32);
    const TestHead head(shape, {.n_entries = 150, .magnitude = magnitude}, 5);
    const TestQueries queries(shape, 50, 6, 100.0F);  // 1e37: products beyond float32
    std::vector<float> out(50 * 2 * 64);
    TestScratch scratch(causal_attention_scratch_bytes(shape));
    causal_attention(shape, head.entries(), queries.rows(101, 100), {out.data(), 2 * 64, nullptr}, scratch.span());
    for (const float x : out) ASSERT_TRUE(std::isfinite(x)) << "keys of magnitude " << magnitude;
  }
  // Sharp but representable: one entry takes all.
  expect_reference(test_shape(2, 64, EntryType::kF32),
                   {.n_visible = 100, .n_rows = 20, .magnitude = 30.0F, .tolerance = 1e-3});
}

INSTANTIATE_TEST_SUITE_P(Isa, CausalAttention, testing::ValuesIn(bf16_isas()), isa_test_name);

}  // namespace
}  // namespace winnow::kernels
