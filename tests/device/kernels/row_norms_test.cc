#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "device/kernels/key_sums-inl.h"
#include "device/kernels/paged_heads.h"
#include "device/kernels/row_norms-inl.h"
#include "kernels/entries/rows.h"
#include "kernels/reference/reference.h"

namespace winnow::device {
namespace {

using simt::ThreadOrder;

struct Result {
  std::vector<float> key_l2, value_l1, value_l2;  // [n_kv_head][stride]
};

Result measure(const LayerAttention& layer, const PagedHeads& heads, int stride, ThreadOrder order) {
  const std::vector<float> nothing(static_cast<std::size_t>(layer.n_kv_head * stride), -1.0F);
  Result result{nothing, nothing, nothing};
  simt::Queue queue(order);
  queue_row_norms(queue, {.layer = layer,
                          .heads = heads.tables(),
                          .n_most = heads.n_most(),
                          .stride = stride,
                          .key_factors = nullptr,
                          .key_l2 = result.key_l2.data(),
                          .value_l1 = result.value_l1.data(),
                          .value_l2 = result.value_l2.data()});
  return result;
}

TEST(RowNorms, MatchTheReference) {
  const std::vector<PagedHead> sizes = {{1}, {33, 5}, {0}, {200, 31}, {64}};
  for (const EntryType key_type : {EntryType::kF16, EntryType::kBF16}) {
    for (const EntryType value_type : {EntryType::kF16, EntryType::kBF16}) {
      for (const int dim : {16, 64, 80, 128, 256}) {
        const LayerAttention layer = {.n_head = 5,
                                      .n_kv_head = 5,
                                      .key_dim = dim,
                                      .value_dim = dim / 2 + 8,
                                      .key_type = key_type,
                                      .value_type = value_type,
                                      .scale = 1.0F};
        if (layer.value_dim % 16 != 0) continue;
        const PagedHeads heads(layer, sizes, 3);
        const int stride = heads.n_most() + 2;
        const Result result = measure(layer, heads, stride, ThreadOrder::kAscending);
        for (const ThreadOrder order : {ThreadOrder::kDescending, ThreadOrder::kRandom}) {
          EXPECT_EQ(measure(layer, heads, stride, order).value_l1, result.value_l1);
        }
        for (int h = 0; h < layer.n_kv_head; ++h) {
          const kernels::HeadEntries& entries = heads.entries(h);
          const std::vector<double> key_l2 = kernels::reference::key_l2_norms(heads.shape(), entries);
          const std::vector<double> value_l1 = kernels::reference::value_l1_norms(heads.shape(), entries);
          const std::vector<double> value_l2 = kernels::reference::value_l2_norms(heads.shape(), entries);
          for (int i = 0; i < stride; ++i) {
            const auto at = static_cast<std::size_t>(h * stride + i), from = static_cast<std::size_t>(i);
            if (i >= entries.n_entries) {
              ASSERT_EQ(result.key_l2[at], -1.0F);
              ASSERT_EQ(result.value_l1[at], -1.0F);
              continue;
            }
            ASSERT_NEAR(static_cast<double>(result.key_l2[at]), key_l2[from], 1e-6 * key_l2[from]);
            ASSERT_NEAR(static_cast<double>(result.value_l1[at]), value_l1[from], 1e-6 * value_l1[from]);
            ASSERT_NEAR(static_cast<double>(result.value_l2[at]), value_l2[from], 1e-6 * value_l2[from]);
          }
        }
      }
    }
  }
}

// Keys that were multiplied by powers of two have the norms that they had, by the factors.
TEST(RowNorms, FactorsTakeOutThoseOfKeys) {
  for (const EntryType key_type : {EntryType::kF16, EntryType::kBF16}) {
    for (const int dim : {16, 80, 256}) {
      const LayerAttention layer = {.n_head = 3,
                                    .n_kv_head = 3,
                                    .key_dim = dim,
                                    .value_dim = 16,
                                    .key_type = key_type,
                                    .value_type = EntryType::kF16,
                                    .scale = 1.0F};
      const PagedHeads heads(layer, {{33, 5}, {0}, {70}}, 3);
      const auto width = static_cast<std::size_t>(dim), stride = static_cast<std::size_t>(heads.n_most());
      std::vector<float> factors(3 * width);
      for (std::size_t i = 0; i < factors.size(); ++i) factors[i] = std::ldexp(1.0F, static_cast<int>(i % 7) - 3);
      std::vector<float> norms(3 * stride, -1.0F), value_l2(3 * stride);
      simt::Queue queue(ThreadOrder::kRandom);
      queue_row_norms(queue, {.layer = layer,
                              .heads = heads.tables(),
                              .n_most = heads.n_most(),
                              .stride = heads.n_most(),
                              .key_factors = factors.data(),
                              .key_l2 = norms.data(),
                              .value_l1 = nullptr,
                              .value_l2 = value_l2.data()});
      std::vector<float> key(width);
      for (std::size_t h = 0; h < 3; ++h) {
        const kernels::HeadEntries& entries = heads.entries(static_cast<int>(h));
        const std::vector<double> of_values = kernels::reference::value_l2_norms(heads.shape(), entries);
        for (int i = 0; i < entries.n_entries; ++i) {
          const auto from = static_cast<std::size_t>(i);
          kernels::load_entry(heads.shape(), entries.runs[0], kernels::RowKind::kKey, i, key.data());
          double square = 0;
          for (std::size_t c = 0; c < width; ++c) {
            square += std::pow(static_cast<double>(key[c]) * static_cast<double>(factors[h * width + c]), 2);
          }
          ASSERT_NEAR(static_cast<double>(norms[h * stride + from]), std::sqrt(square), 1e-6 * std::sqrt(square));
          ASSERT_NEAR(static_cast<double>(value_l2[h * stride + from]), of_values[from], 1e-6 * of_values[from]);
        }
      }
    }
  }
}

TEST(KeySums, AreThoseOfTheRows) {
  for (const EntryType type : {EntryType::kF16, EntryType::kBF16}) {
    for (const int dim : {16, 64, 80, 128, 256}) {
      const LayerAttention layer = {.n_head = 4,
                                    .n_kv_head = 4,
                                    .key_dim = dim,
                                    .value_dim = 16,
                                    .key_type = type,
                                    .value_type = type,
                                    .scale = 1.0F};
      const PagedHeads heads(layer, {{3}, {33, 5}, {0}, {2 * kKeySumEntries + 7, 31}}, 3);
      constexpr int kFirst = 4;
      const int n_slices = key_sum_slices(heads.n_most());
      const auto width = static_cast<std::size_t>(dim);
      std::vector<float> sums(4 * static_cast<std::size_t>(n_slices) * width, std::nanf(""));
      simt::Queue queue(ThreadOrder::kRandom);
      queue_key_sums(
          queue,
          {.layer = layer, .heads = heads.tables(), .n_most = heads.n_most(), .first = kFirst, .sums = sums.data()});
      const float* of_slice = sums.data();
      for (int h = 0; h < 4; ++h) {
        const kernels::HeadEntries& entries = heads.entries(h);
        std::vector<double> expected(width), found(width);
        std::vector<float> key(width);
        for (int i = kFirst; i < entries.n_entries; ++i) {
          kernels::load_entry(heads.shape(), entries.runs[0], kernels::RowKind::kKey, i, key.data());
          for (std::size_t c = 0; c < width; ++c) expected[c] += static_cast<double>(key[c]);
        }
        for (int s = 0; s < n_slices; ++s, of_slice += dim) {
          for (std::size_t c = 0; c < width; ++c) found[c] += static_cast<double>(of_slice[c]);
        }
        for (std::size_t c = 0; c < width; ++c) ASSERT_NEAR(found[c], expected[c], 1e-3) << h << " " << c;
      }
    }
  }
}

TEST(RowLengths, AreThoseOfTheRows) {
  for (const int n : {4, 128, 576, 1000}) {
    constexpr int kRows = 19;
    const AlignedRows rows(static_cast<std::size_t>(kRows * n), 8);
    std::vector<float> lengths(kRows + 1, -1.0F);
    simt::Queue queue(ThreadOrder::kRandom);
    queue_row_lengths(queue, {.rows = rows.data(), .lengths = lengths.data(), .n = n, .n_rows = kRows});
    for (int r = 0; r < kRows; ++r) {
      double square = 0;
      for (int i = 0; i < n; ++i) square += std::pow(static_cast<double>(rows.data()[r * n + i]), 2);
      ASSERT_NEAR(static_cast<double>(lengths[static_cast<std::size_t>(r)]), std::sqrt(square),
                  1e-6 * std::sqrt(square));
    }
    EXPECT_EQ(lengths.back(), -1.0F);
  }
}

}  // namespace
}  // namespace winnow::device
