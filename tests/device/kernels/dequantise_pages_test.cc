#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "device/kernel_plans.h"
#include "device/kernels/device_pages.h"
#include "device/kernels/host_kernels.h"

namespace winnow::device {
namespace {

struct alignas(16) Word {
  std::byte bytes[16];
};

LayerAttention layer_of(int key_dim, int value_dim) {
  return {.n_head = 1,
          .n_kv_head = 1,
          .key_dim = key_dim,
          .value_dim = value_dim,
          .key_type = EntryType::kF16,
          .value_type = EntryType::kF16,
          .scale = 1,
          .soft_cap = 0,
          .sliding_window = 0,
          .sink_logits = nullptr};
}

// Expects the dequantised rows to be those that the processor reads, to float16's rounding.
void expect_rows(int key_dim, int value_dim, const std::vector<RowTypes>& types, simt::ThreadOrder order) {
  const LayerAttention layer = layer_of(key_dim, value_dim);
  const int n_pages = static_cast<int>(types.size()), n_entries = (n_pages + 1) * kPageEntries;
  TestPages pages(layer, 0, n_entries, 3, 1.0F, types);
  const std::size_t key_words = kPageEntries * static_cast<std::size_t>(key_dim) / 8,
                    value_words = kPageEntries * static_cast<std::size_t>(value_dim) / 8;
  std::vector<std::vector<Word>> memory;
  std::vector<CodedPage> coded;
  for (int i = 0; i < n_pages; ++i) {
    CodedPage page = {.from = pages.pages()[static_cast<std::size_t>(i)], .to = {}, .origin = pages.origin()};
    page.to.keys = reinterpret_cast<std::byte*>(memory.emplace_back(key_words).data());
    page.to.values = reinterpret_cast<std::byte*>(memory.emplace_back(value_words).data());
    coded.push_back(page);
  }
  simt::Queue queue(order);
  fibers::run(queue,
              DequantisePages{.pages = coded.data(), .n_pages = n_pages, .key_dim = key_dim, .value_dim = value_dim});

  const kernels::HeadEntries entries = pages.entries();
  for (int i = 0; i < n_pages; ++i) {
    const kernels::EntryRun& run = entries.runs[static_cast<std::size_t>(i)];
    for (const kernels::RowKind kind : {kernels::RowKind::kKey, kernels::RowKind::kValue}) {
      const bool is_key = kind == kernels::RowKind::kKey;
      if (!kernels::is_coded(kernels::row_type(run, kind))) continue;
      const int dim = is_key ? key_dim : value_dim;
      const std::byte* to =
          is_key ? coded[static_cast<std::size_t>(i)].to.keys : coded[static_cast<std::size_t>(i)].to.values;
      std::vector<float> expected(static_cast<std::size_t>(dim)), row(expected);
      for (int e = 0; e < kPageEntries; ++e) {
        kernels::load_entry(shape_of(layer), run, kind, e, expected.data());
        kernels::load_row(EntryType::kF16, to + static_cast<std::size_t>(e) * row_bytes(EntryType::kF16, dim),
                          row.data(), dim);
        for (std::size_t c = 0; c < row.size(); ++c) {
          ASSERT_NEAR(row[c], expected[c], 0.01) << "page " << i << ", entry " << e << ", number " << c;
        }
      }
    }
  }
}

TEST(DequantisePages, GivesTheRowsThatTheProcessorReads) {
  constexpr EntryType kF16 = EntryType::kF16, kR4 = EntryType::kR4, kR3 = EntryType::kR3, kQ8 = EntryType::kQ8_0,
                      kQ4 = EntryType::kQ4_0;
  for (const simt::ThreadOrder order : {simt::ThreadOrder::kAscending, simt::ThreadOrder::kRandom}) {
    const int sizes[][2] = {{16, 16}, {48, 80}, {64, 64}, {112, 96}, {128, 128}, {192, 128}, {256, 256}};
    for (const auto& size : sizes) {
      SCOPED_TRACE(std::to_string(size[0]) + " " + std::to_string(size[1]));
      expect_rows(size[0], size[1], {{kR4, kR3}, {kR3, kR4}, {kF16, kR4}, {kR3, kF16}}, order);
    }
    expect_rows(64, 96, {{kQ8, kQ4}, {kQ4, kQ8}, {kQ8, kF16}}, order);
  }
}

}  // namespace
}  // namespace winnow::device
