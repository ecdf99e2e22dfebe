#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "device/kernels/causal_attention-inl.h"
#include "device/kernels/paged_heads.h"
#include "kernels/reference/reference.h"

namespace winnow::device {
namespace {

using simt::ThreadOrder;

struct Case {
  int dim = 64;
  int value_dim = 0;  // 0: dim
  EntryType type = EntryType::kF16;
  int n_group = 2;
  int n_rows = 40;
  std::vector<PagedHead> heads = {{40}};
  int window = 0;
  float soft_cap = 0;
  std::vector<float> sinks = {};
  float magnitude = 1.0F;
  bool sees_all = false;

  LayerAttention layer() const {
    return {.n_head = n_group * static_cast<int>(heads.size()),
            .n_kv_head = static_cast<int>(heads.size()),
            .key_dim = dim,
            .value_dim = value_dim == 0 ? dim : value_dim,
            .key_type = type,
            .value_type = type,
            .scale = 1.0F / std::sqrt(static_cast<float>(dim)),
            .soft_cap = soft_cap,
            .sliding_window = window,
            .sink_logits = sinks.empty() ? nullptr : sinks.data()};
  }
};

// Returns queries that are rounded to the entries' type, as the kernel uses them.
AlignedRows rounded_queries(const LayerAttention& layer, int n_rows, unsigned seed) {
  const auto n = static_cast<std::size_t>(n_rows * layer.n_head * layer.key_dim);
  AlignedRows q(n, seed);
  std::vector<std::byte> stored(row_bytes(layer.key_type, layer.key_dim));
  for (std::size_t i = 0; i < n; i += static_cast<std::size_t>(layer.key_dim)) {
    kernels::store_row(layer.key_type, q.data() + i, stored.data(), layer.key_dim);
    kernels::load_row(layer.key_type, stored.data(), q.data() + i, layer.key_dim);
  }
  return q;
}

struct Result {
  std::vector<float> out;          // [n_rows][n_head][value_dim]
  std::vector<float> log_sum_exp;  // [n_rows][n_head]
};

Result attend(const LayerAttention& layer, const PagedHeads& heads, const float* q, int n_rows, ThreadOrder order,
              bool sees_all = false) {
  const auto n = static_cast<std::size_t>(n_rows * layer.n_head);
  Result result{.out = std::vector<float>(n * static_cast<std::size_t>(layer.value_dim), std::nanf("")),
                .log_sum_exp = std::vector<float>(n, std::nanf(""))};
  simt::Queue queue(order);
  queue_causal_attention(queue, {.layer = layer,
                                 .q = q,
                                 .out = result.out.data(),
                                 .log_sum_exp = result.log_sum_exp.data(),
                                 .heads = heads.tables(),
                                 .n_rows = n_rows,
                                 .n_most = heads.n_most(),
                                 .sees_all = sees_all});
  return result;
}

void expect_reference(const Case& c, ThreadOrder order = ThreadOrder::kAscending) {
  std::string sizes;
  for (const PagedHead& head : c.heads)
    sizes += " " + std::to_string(head.n_entries) + "@" + std::to_string(head.first_slot);
  SCOPED_TRACE(testing::Message() << "dim " << c.dim << " type " << entry_type_name(c.type) << " n_group " << c.n_group
                                  << " n_rows " << c.n_rows << " heads" << sizes << " window " << c.window);
  const LayerAttention layer = c.layer();
  const PagedHeads heads(layer, c.heads, 7, c.magnitude);
  const AlignedRows q = rounded_queries(layer, c.n_rows, 11);
  const Result result = attend(layer, heads, q.data(), c.n_rows, order, c.sees_all);

  // The weights are rounded to the type, which changes a mean of values (hardly any exceeds 5) by at most this.
  const double tolerance = (c.type == EntryType::kF16 ? 0x1p-11 : 0x1p-8) * 3 + 1e-4;
  for (int h = 0; h < layer.n_kv_head; ++h) {
    const int n_entries = c.heads[static_cast<std::size_t>(h)].n_entries;
    const kernels::QueryRows rows{.q = q.data() + h * c.n_group * c.dim,
                                  .row_stride = layer.n_head * c.dim,
                                  .n_rows = c.n_rows,
                                  .n_visible = c.sees_all ? n_entries : n_entries - c.n_rows + 1,
                                  .first_position = c.sees_all ? n_entries : n_entries - c.n_rows};
    const kernels::reference::CausalResult expected =
        kernels::reference::causal_attention(heads.shape().of_head(h), heads.entries(h), rows);
    for (int r = 0; r < c.n_rows; ++r) {
      for (int g = 0; g < c.n_group; ++g) {
        const auto from = static_cast<std::size_t>(r * c.n_group + g);
        const auto at = static_cast<std::size_t>(r * layer.n_head + h * c.n_group + g);
        const double log_sum_exp = static_cast<double>(result.log_sum_exp[at]);
        if (std::isinf(expected.log_sum_exp[from])) {
          ASSERT_EQ(log_sum_exp, -std::numeric_limits<double>::infinity());
        } else {
          ASSERT_NEAR(log_sum_exp, expected.log_sum_exp[from], 1e-5 * (1 + std::abs(expected.log_sum_exp[from])))
              << "head " << h << " row " << r << " query head " << g;
        }
        const auto d = static_cast<std::size_t>(layer.value_dim);
        for (std::size_t i = 0; i < d; ++i) {
          ASSERT_NEAR(static_cast<double>(result.out[at * d + i]), expected.out[from * d + i], tolerance)
              << "head " << h << " row " << r << " query head " << g << " number " << i;
        }
      }
    }
  }
}

TEST(CausalAttention, MatchesTheReferenceWhereRowsSeeAllEntries) {
  for (const int dim : {64, 128}) {
    for (const ThreadOrder order : {ThreadOrder::kAscending, ThreadOrder::kRandom}) {
      expect_reference({.dim = dim, .n_rows = 150, .heads = {{1}, {64, 5}, {200}, {511, 31}}, .sees_all = true}, order);
    }
  }
  expect_reference({.n_rows = 3, .heads = {{0}, {700, 1}}, .soft_cap = 5, .sinks = {1, 2, 3, 4}, .sees_all = true});
}

TEST(CausalAttention, MatchesTheReferenceForHeadSizes) {
  for (const EntryType type : {EntryType::kF16, EntryType::kBF16}) {
    for (const int dim : {16, 48, 64, 80, 96, 112, 128, 160, 192, 256}) {
      expect_reference({.dim = dim, .type = type, .n_group = 1, .n_rows = 70, .heads = {{90}}});
    }
  }
  expect_reference({.dim = 64, .value_dim = 128, .heads = {{75}}});
  expect_reference({.dim = 96, .value_dim = 32, .heads = {{75}}});
}

TEST(CausalAttention, MatchesTheReferenceForNumbersOfRowsAndEarlierEntries) {
  for (const int n_rows : {1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 200}) {
    for (const int n_earlier : {0, 1, 63, 64, 130}) {
      expect_reference({.n_group = 1, .n_rows = n_rows, .heads = {{n_earlier + n_rows}}});
    }
  }
}

TEST(CausalAttention, MatchesTheReferenceForGroups) {
  for (const int n_group : {1, 2, 3, 7, 16, 17}) {
    expect_reference({.n_group = n_group, .n_rows = 10, .heads = {{20}, {33}}});
  }
}

TEST(CausalAttention, MatchesTheReferenceForSlidingWindows) {
  for (const int window : {1, 2, 31, 63, 64, 65, 100, 128, 150, 1000}) {
    expect_reference({.n_group = 1, .n_rows = 140, .heads = {{300, 5}}, .window = window});
  }
}

TEST(CausalAttention, MatchesTheReferenceForHeadsOfDifferentLengths) {
  for (const int n_rows : {1, 30, 70}) {
    expect_reference({.n_rows = n_rows, .heads = {{n_rows}, {n_rows + 200}, {n_rows + 1, 31}, {n_rows + 64, 7}}});
  }
}

TEST(CausalAttention, MatchesTheReferenceForFirstSlots) {
  for (const int first_slot : {1, 15, 16, 30, 31}) {
    for (const int n_entries : {1, 33, 64, 65, 97, 130}) {
      expect_reference(
          {.n_group = 1, .n_rows = std::min(n_entries, 40), .heads = {{n_entries, first_slot}}, .window = 50});
    }
  }
}

TEST(CausalAttention, MatchesTheReferenceWithSoftCapAndSinks) {
  expect_reference({.n_rows = 50, .heads = {{90}}, .soft_cap = 5.0F, .magnitude = 4.0F});
  expect_reference({.n_rows = 50, .heads = {{90}, {70}}, .sinks = {0.5F, -3.0F, 9.0F, 30.0F}});
  expect_reference({.type = EntryType::kBF16, .n_rows = 50, .heads = {{90}}, .window = 20, .sinks = {2.0F, -40.0F}});
}

// The head of a later layer may have fewer entries than there are rows.
TEST(CausalAttention, RowsThatSeeNothingAreZeros) {
  const Case c{.n_group = 1, .n_rows = 40, .heads = {{25}}};
  const LayerAttention layer = c.layer();
  const PagedHeads heads(layer, c.heads, 7);
  const AlignedRows q = rounded_queries(layer, c.n_rows, 11);
  const Result result = attend(layer, heads, q.data(), c.n_rows, ThreadOrder::kAscending);
  for (std::size_t r = 0; r < 15; ++r) {
    EXPECT_EQ(result.log_sum_exp[r], -std::numeric_limits<float>::infinity());
    for (std::size_t i = 0; i < 64; ++i) EXPECT_EQ(result.out[r * 64 + i], 0.0F);
  }
  for (std::size_t i = 15 * 64; i < result.out.size(); ++i) EXPECT_TRUE(std::isfinite(result.out[i]));
}

TEST(CausalAttention, DoesNotDependOnTheOrderOfThreads) {
  for (const int dim : {64, 128, 256}) {
    const Case c{.dim = dim, .n_rows = 100, .heads = {{150, 3}, {110}}, .window = 90};
    const LayerAttention layer = c.layer();
    const PagedHeads heads(layer, c.heads, 7);
    const AlignedRows q = rounded_queries(layer, c.n_rows, 11);
    const Result expected = attend(layer, heads, q.data(), c.n_rows, ThreadOrder::kAscending);
    for (const ThreadOrder order : {ThreadOrder::kDescending, ThreadOrder::kRandom}) {
      const Result result = attend(layer, heads, q.data(), c.n_rows, order);
      EXPECT_EQ(result.out, expected.out);
      EXPECT_EQ(result.log_sum_exp, expected.log_sum_exp);
    }
  }
}

// A row has the same bits whichever rows are computed with it.
TEST(CausalAttention, DoesNotDependOnTheOtherRows) {
  for (const int window : {0, 45}) {
    const Case c{.dim = 128, .n_rows = 190, .heads = {{260, 9}, {190}}, .window = window};
    const LayerAttention layer = c.layer();
    const PagedHeads heads(layer, c.heads, 7);
    const AlignedRows q = rounded_queries(layer, c.n_rows, 11);
    const Result all = attend(layer, heads, q.data(), c.n_rows, ThreadOrder::kAscending);
    const auto per_row = static_cast<std::size_t>(layer.n_head * layer.value_dim);
    for (const int n_last : {1, 2, 17, 64, 129}) {
      const auto skipped = static_cast<std::size_t>(c.n_rows - n_last);
      const float* last_q = q.data() + skipped * static_cast<std::size_t>(layer.n_head * layer.key_dim);
      const Result result = attend(layer, heads, last_q, n_last, ThreadOrder::kAscending);
      EXPECT_TRUE(std::equal(result.out.begin(), result.out.end(),
                             all.out.begin() + static_cast<std::ptrdiff_t>(skipped * per_row)))
          << n_last;
    }
  }
}

}  // namespace
}  // namespace winnow::device
