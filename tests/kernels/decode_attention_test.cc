#include <gtest/gtest.h>

#include "kernels/attention/attention.h"
#include "kernels/attention/bf16_attention.h"
#include "kernels/attention/code_products.h"
#include "kernels/reference/reference.h"
#include "kernels/test_head.h"

namespace winnow::kernels {
namespace {

void decode_slices(const AttentionShape& shape, const DecodeSlices& slices, const GroupSoftmax& out) {
  TestScratch scratch(decode_attention_scratch_bytes(shape));
  std::fill_n(out.values, std::ssize(out.states) * shape.value_dim, std::nanf(""));
  decode_attention(shape, slices, out, scratch.span());
}

// Decodes the one slice [first, last).
void decode_slice(const AttentionShape& shape, const HeadEntries& entries, const float* q, int position, int first,
                  int last, const GroupSoftmax& out) {
  decode_slices(shape, {q, entries, first, last, std::max(1, last - first), position}, out);
}

// Decodes in up to n_slices equal slices and merges them.
std::vector<float> decode(const AttentionShape& shape, const HeadEntries& entries, const float* q, int position,
                          int n_slices) {
  const int size = std::max(1, (entries.n_entries + n_slices - 1) / n_slices);
  const DecodeSlices slices{q, entries, 0, entries.n_entries, size, position};
  GroupSoftmaxes states(static_cast<std::size_t>(slices.count()), shape.n_group, shape.value_dim);
  const auto at = [&](int s) { return states.at(static_cast<std::size_t>(s), shape.n_group, shape.value_dim); };
  decode_slices(shape, slices, states.at(0, shape.n_group, shape.value_dim, static_cast<std::size_t>(slices.count())));
  for (int s = 1; s < slices.count(); ++s) merge(shape, at(0), at(s));
  std::vector<float> out(static_cast<std::size_t>(shape.n_group * shape.value_dim), std::nanf(""));
  finish_attention(shape, at(0), out.data());
  return out;
}

bool is_by_bytes(EntryType type, const AttentionShape& shape) {
  return (shape.key_type == type && has_code_products(type, shape.key_dim)) ||
         (shape.value_type == type && has_code_products(type, shape.value_dim));
}

// Returns the error of products of bytes, which have levels of r4 and r3 and the queries for them in 8 bits and all
// other numbers in 16 (code_products.h); 0 if the shape does not use them.
double error_of_bytes(const AttentionShape& shape) {
  const bool is_by_codes = is_by_bytes(EntryType::kR4, shape) || is_by_bytes(EntryType::kR3, shape);
  return is_by_codes ? 5e-3 : is_by_bytes(EntryType::kQ8_0, shape) ? 2e-4 : 0;
}

// Returns the error of products of words, which have queries and weights in 15 bits and levels of r4 and r3 in 11
// (decode_words-inl.h); 0 if the shape does not use them.
double error_of_words(const AttentionShape& shape) {
  if (!current_isa().starts_with("AVX2")) return 0;
  const auto has = [&](EntryType type) { return shape.key_type == type || shape.value_type == type; };
  return has(EntryType::kR4) || has(EntryType::kR3) ? 1e-3 : has(EntryType::kQ8_0) || has(EntryType::kQ4_0) ? 2e-4 : 0;
}

void expect_reference(const AttentionShape& shape, const TestHead::Options& options, double tolerance = 2e-5) {
  SCOPED_TRACE(testing::Message() << "n_group " << shape.n_group << " head_dim " << shape.key_dim << " type "
                                  << entry_type_name(shape.key_type) << " n_entries " << options.n_entries << " window "
                                  << shape.spec.sliding_window);
  const TestHead head(shape, options, static_cast<unsigned>(options.n_entries + shape.key_dim));
  const TestQueries queries(shape, 1, 4);
  const int position = head.last_position();
  tolerance = std::max({tolerance, error_of_bytes(shape), error_of_words(shape)});
  const int n = head.entries().n_entries;
  const std::vector<double> expected =
      reference::decode_attention(shape, {queries.q(), head.entries(), 0, n, std::max(1, n), position});
  for (const int n_slices : {1, 3}) {
    const std::vector<float> out = decode(shape, head.entries(), queries.q(), position, n_slices);
    for (std::size_t i = 0; i < out.size(); ++i) {
      ASSERT_NEAR(static_cast<double>(out[i]), expected[i], tolerance) << "number " << i << ", slices " << n_slices;
    }
  }
}

class DecodeAttention : public EveryIsa {};

TEST_P(DecodeAttention, MatchesTheReferenceForHeadSizesAndGroups) {
  for (const int head_dim : {16, 48, 64, 80, 96, 128, 256, 512}) {
    for (int n_group = 1; n_group <= 16; ++n_group) {
      expect_reference(test_shape(n_group, head_dim, EntryType::kF16), {.n_entries = 83, .run_sizes = {32}});
    }
    expect_reference(test_shape(5, head_dim, EntryType::kF32), {.n_entries = 83});
  }
}

// One KV head serves all query heads (MQA); also the largest group and head size that a model may have.
TEST_P(DecodeAttention, MatchesTheReferenceForLargeGroups) {
  for (const int n_group : {17, 24, 33, 64, 100, kMaxGroup}) {
    expect_reference(test_shape(n_group, 64, EntryType::kF16), {.n_entries = 83, .run_sizes = {32}});
  }
  for (const EntryType type : {EntryType::kF32, EntryType::kF16, EntryType::kQ4_0}) {
    expect_reference(test_shape(kMaxGroup, kMaxHeadDim, type), {.n_entries = 150, .run_sizes = {32}});
  }
}

TEST_P(DecodeAttention, MatchesTheReferenceForEveryEntryType) {
  for (const EntryType type : entry_types()) {
    expect_reference(test_shape(3, 64, type), {.n_entries = 200, .run_sizes = {32, 7}});
    expect_reference(test_shape(8, 128, type), {.n_entries = 200, .run_sizes = {32, 7}});
  }
  AttentionShape mixed = test_shape(2, 96, EntryType::kQ4_0);
  mixed.value_type = EntryType::kF16;
  expect_reference(mixed, {.n_entries = 77});
}

TEST_P(DecodeAttention, ReadsPlainAndCodedRunsTogether) {
  for (const EntryType type : {EntryType::kQ8_0, EntryType::kQ4_0, EntryType::kR4, EntryType::kR3}) {
    for (const std::vector<int>& run_sizes : {std::vector{4, 32, 32}, {4, 32, 28, 32, 1}, {1, 2, 3}}) {
      for (const std::optional<EntryType> high : {std::optional<EntryType>(), {EntryType::kQ8_0}, {EntryType::kR4}}) {
        const AttentionShape of_r4 = test_shape(3, 64, EntryType::kR4);
        const double error = high == EntryType::kR4 ? std::max(error_of_bytes(of_r4), error_of_words(of_r4)) : 0;
        expect_reference(test_shape(3, 64, type),
                         {.n_entries = 301, .run_sizes = run_sizes, .has_plain = true, .high = high},
                         std::max(2e-5, error));
      }
    }
  }
}

// Scores share a part of about 10. Blocks of entries are shifted as a whole or consist of runs with and without an
// origin.
TEST_P(DecodeAttention, KeysMayBeStoredLessAnOrigin) {
  const std::vector<float> sinks = {-3.0F, 8.0F, 0.5F};
  for (const EntryType type : entry_types()) {
    for (const std::vector<int>& run_sizes : {std::vector{4, 32, 32, 32, 32, 32}, {32, 7}, {1, 2, 3}, {301}}) {
      for (const bool has_plain : {false, true}) {
        for (const float soft_cap : {0.0F, 30.0F}) {
          AttentionShape shape = test_shape(3, 64, type);
          shape.spec.soft_cap = soft_cap;
          if (has_plain) shape.spec.sink_logits = sinks.data();
          expect_reference(shape, {.n_entries = 301, .run_sizes = run_sizes, .has_plain = has_plain, .origin = 10.0F},
                           1e-4);
        }
      }
    }
  }
  expect_reference(test_shape(kMaxGroup, kMaxHeadDim, EntryType::kQ4_0),
                   {.n_entries = 83, .run_sizes = {32}, .origin = 10.0F}, 1e-4);
}

// Keys keep what they differ in, although they share a part that is 300 times as large.
TEST_P(DecodeAttention, AnOriginIsNotRounded) {
  AttentionShape shape = test_shape(3, 64, EntryType::kQ8_0);
  expect_reference(shape, {.n_entries = 301, .run_sizes = {32}, .origin = 300.0F}, 2e-3);
}

// A few entries have nearly all of the weight, in pages with others whose weights are small, or all have the same
// weight.
TEST_P(DecodeAttention, MatchesTheReferenceForUnequalWeights) {
  for (const EntryType type : {EntryType::kQ8_0, EntryType::kQ4_0}) {
    for (const float magnitude : {0.0F, 4.0F, 30.0F}) {
      // Errors of scores, and thus of weights, are proportional to the scores.
      expect_reference(test_shape(3, 64, type), {.n_entries = 300, .run_sizes = {32}, .magnitude = magnitude},
                       std::max(2e-5, 4e-5 * static_cast<double>(magnitude)));
    }
  }
}

// Covers groups and head sizes of the types in blocks, with an odd number of entries.
TEST_P(DecodeAttention, MatchesTheReferenceForTypesInBlocks) {
  for (const EntryType type : {EntryType::kQ8_0, EntryType::kQ4_0, EntryType::kR4, EntryType::kR3}) {
    for (const int head_dim : {32, 64, 96, 128}) {
      for (const int n_group : {1, 2, 3, 4, 5, 7, 8, 12}) {
        expect_reference(test_shape(n_group, head_dim, type), {.n_entries = 83, .run_sizes = {32}});
      }
    }
    expect_reference(test_shape(2, 64, type), {.n_entries = 1001});
  }
}

TEST_P(DecodeAttention, MatchesTheReferenceForEveryLength) {
  for (const int n_entries : {0, 1, 2, 3, 4, 5, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 127, 128, 129, 257, 1000}) {
    expect_reference(test_shape(3, 64, EntryType::kF16), {.n_entries = n_entries});
    expect_reference(test_shape(3, 64, EntryType::kF16), {.n_entries = n_entries, .run_sizes = {32}});
    expect_reference(test_shape(4, 128, EntryType::kF32), {.n_entries = n_entries, .run_sizes = {1, 40, 0, 3}});
  }
}

TEST_P(DecodeAttention, HidesWhatTheSlidingWindowHides) {
  for (const int window : {1, 2, 31, 100, 5000}) {
    AttentionShape shape = test_shape(3, 64, EntryType::kF16);
    shape.spec.sliding_window = window;
    expect_reference(shape, {.n_entries = 150, .run_sizes = {32}, .max_gap = 4});
  }
}

TEST_P(DecodeAttention, KeysAndValuesMayHaveDifferentSizes) {
  for (const EntryType type : {EntryType::kF32, EntryType::kF16, EntryType::kQ8_0}) {
    for (const auto& [key_dim, value_dim] : {std::pair{192, 128}, {64, 256}, {512, 512}, {96, 32}}) {
      AttentionShape shape = test_shape(3, key_dim, type);
      shape.value_dim = value_dim;
      expect_reference(shape, {.n_entries = 150, .run_sizes = {32}});
    }
  }
}

TEST_P(DecodeAttention, CapsScoresAndGivesWeightToSinks) {
  const std::vector<float> sinks = {-3.0F, 0.5F, 40.0F};
  for (const float soft_cap : {0.0F, 0.5F, 30.0F}) {
    for (const bool has_sinks : {false, true}) {
      for (const int n_entries : {0, 1, 150}) {
        AttentionShape shape = test_shape(3, 64, EntryType::kF16);
        shape.spec.soft_cap = soft_cap;
        shape.spec.sink_logits = has_sinks ? sinks.data() : nullptr;
        expect_reference(shape, {.n_entries = n_entries, .run_sizes = {32}, .magnitude = 3.0F}, 5e-5);
        shape.spec.sliding_window = 20;
        expect_reference(shape, {.n_entries = n_entries, .run_sizes = {32}}, 5e-5);
      }
    }
  }
}

TEST_P(DecodeAttention, EmptySlicesGiveTheEmptyStateAndMergeToZero) {
  AttentionShape shape = test_shape(2, 64, EntryType::kF16);
  const TestHead head(shape, {.n_entries = 40}, 1);
  const TestQueries queries(shape, 1, 2);
  GroupSoftmaxes states(3, 2, 64);
  const GroupSoftmax state = states.at(0, 2, 64);
  const auto expect_empty = [](const GroupSoftmax& group) {
    for (const SoftmaxState& s : group.states) {
      EXPECT_TRUE(s.is_empty());
      EXPECT_EQ(s.max, -HUGE_VALF);
    }
    for (int i = 0; i < 2 * 64; ++i) ASSERT_EQ(group.values[i], 0.0F);
  };
  decode_slice(shape, head.entries(), queries.q(), 39, 17, 17, state);
  expect_empty(state);
  // A slice that the sliding window hides completely is empty too.
  shape.spec.sliding_window = 4;
  decode_slice(shape, head.entries(), queries.q(), 39, 0, 10, state);
  expect_empty(state);
  // Merging with the empty state changes nothing on either side.
  decode_slice(shape, head.entries(), queries.q(), 39, 36, 40, states.at(1, 2, 64));
  const std::vector<float> values(states.at(1, 2, 64).values, states.at(1, 2, 64).values + 2 * 64);
  const SoftmaxState first = states.at(1, 2, 64).states[0];
  merge(shape, states.at(1, 2, 64), state);
  merge(shape, state, states.at(1, 2, 64));
  for (const std::size_t i : {std::size_t{0}, std::size_t{1}}) {
    EXPECT_EQ(states.at(i, 2, 64).states[0].max, first.max);
    EXPECT_EQ(states.at(i, 2, 64).states[0].sum, first.sum);
    EXPECT_EQ(std::vector<float>(states.at(i, 2, 64).values, states.at(i, 2, 64).values + 2 * 64), values);
  }
  // Two empty states merge into an empty one, which gives zeros.
  decode_slice(shape, head.entries(), queries.q(), 39, 0, 10, state);
  decode_slice(shape, head.entries(), queries.q(), 39, 0, 10, states.at(2, 2, 64));
  merge(shape, state, states.at(2, 2, 64));
  expect_empty(state);
  std::vector<float> out(2 * 64, std::nanf(""));
  finish_attention(shape, state, out.data());
  for (const float x : out) ASSERT_EQ(x, 0.0F);
}

// The bits do not depend on whether a thread works on some of a head's slices or on all of them, whatever types the
// entries have.
TEST_P(DecodeAttention, SlicesAreTheSameAloneAndTogether) {
  constexpr int kSize = 48, kGroup = 3, kDim = 64;
  for (const EntryType type : {EntryType::kF16, EntryType::kQ8_0, EntryType::kQ4_0, EntryType::kR4, EntryType::kR3}) {
    SCOPED_TRACE(entry_type_name(type));
    for (const std::optional<EntryType> high : {std::optional<EntryType>(), {EntryType::kQ8_0}, {EntryType::kR4}}) {
      const bool is_mixed = high.has_value();
      AttentionShape shape = test_shape(kGroup, kDim, type);
      shape.spec.sliding_window = is_mixed ? 150 : 0;  // hides the first slice and a part of the second
      const TestHead head(shape, {.n_entries = 215, .run_sizes = {4, 32, 32}, .has_plain = is_mixed, .high = high}, 7);
      const TestQueries queries(shape, 1, 8);
      const DecodeSlices slices{queries.q(), head.entries(), 0, 215, kSize, 214};
      ASSERT_EQ(slices.count(), 5);
      GroupSoftmaxes together(5, kGroup, kDim), alone(1, kGroup, kDim);
      decode_slices(shape, slices, together.at(0, kGroup, kDim, 5));
      for (int s = 0; s < slices.count(); ++s) {
        const GroupSoftmax one = together.at(static_cast<std::size_t>(s), kGroup, kDim);
        const GroupSoftmax other = alone.at(0, kGroup, kDim);
        decode_slice(shape, head.entries(), queries.q(), 214, s * kSize, std::min(215, (s + 1) * kSize), other);
        ASSERT_EQ(*one.are_rotated, *other.are_rotated);
        for (std::size_t g = 0; g < kGroup; ++g) {
          ASSERT_EQ(one.states[g].max, other.states[g].max) << "slice " << s;
          ASSERT_EQ(one.states[g].sum, other.states[g].sum) << "slice " << s;
        }
        for (int i = 0; i < kGroup * kDim; ++i) ASSERT_EQ(one.values[i], other.values[i]) << "slice " << s;
      }
    }
  }
}

TEST_P(DecodeAttention, StateHoldsTheDocumentedSums) {
  const AttentionShape shape = test_shape(1, 16, EntryType::kF32);
  const TestHead head(shape, {.n_entries = 70}, 1);
  const TestQueries queries(shape, 1, 2);
  GroupSoftmaxes states(1, 1, 16);
  decode_slice(shape, head.entries(), queries.q(), 69, 0, 70, states.at(0, 1, 16));
  const SoftmaxState state = states.at(0, 1, 16).states[0];
  const reference::Weights w = reference::weights(shape, head.entries(), queries.rows(70, 69), 0, 0);
  EXPECT_NEAR(static_cast<double>(state.log_sum_exp()), w.log_sum_exp, 1e-5);
  double greatest = 0;
  for (const double a : w.a) greatest = std::max(greatest, a);
  EXPECT_NEAR(static_cast<double>(state.sum), 1.0 / greatest, 1e-5 / greatest);
}

TEST_P(DecodeAttention, LargeScoresStayFinite) {
  for (const float magnitude : {1e3F, 1e18F, 1e37F}) {
    const AttentionShape shape = test_shape(3, 64, EntryType::kF32);
    const TestHead head(shape, {.n_entries = 150, .run_sizes = {32}, .magnitude = magnitude}, 5);
    const TestQueries queries(shape, 1, 6, 100.0F);
    for (const float x : decode(shape, head.entries(), queries.q(), 149, 4)) {
      ASSERT_TRUE(std::isfinite(x)) << "keys of magnitude " << magnitude;
    }
  }
}

// Attention over prompts has kernels of its own for the products of bfloat16.
class DecodeBesidePrompts : public EveryIsa {};

TEST_P(DecodeBesidePrompts, AgreesWithCausalAttention) {
  for (const EntryType type : {EntryType::kF32, EntryType::kF16}) {
    const AttentionShape shape = test_shape(3, 64, type);
    const TestHead head(shape, {.n_entries = 500, .run_sizes = {32}}, 5);
    const TestQueries queries(shape, 1, 6);
    std::vector<float> causal(3 * 64);
    TestScratch scratch(causal_attention_scratch_bytes(shape));
    causal_attention(shape, head.entries(), queries.rows(500, 499), {causal.data(), 3 * 64, nullptr}, scratch.span());
    const std::vector<float> decoded = decode(shape, head.entries(), queries.q(), 499, 2);
    // Products of bfloat16 for prompts round queries and weights; decoding rounds neither.
    const float tolerance = prefers_bf16_attention(shape) ? 2e-2F : 2e-6F;
    for (std::size_t i = 0; i < causal.size(); ++i) ASSERT_NEAR(causal[i], decoded[i], tolerance);
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, DecodeAttention, testing::ValuesIn(vector_isas()), isa_test_name);
INSTANTIATE_TEST_SUITE_P(Isa, DecodeBesidePrompts, testing::ValuesIn(bf16_isas()), isa_test_name);

}  // namespace
}  // namespace winnow::kernels
