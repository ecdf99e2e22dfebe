// Norms of stored rows: eight lanes share a row, so a warp reads four rows at a time, each once. Lengths of long rows:
// each warp takes one row.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/kernel_plans.h"
#include "device/kernels/entry_tiles-inl.h"
#include "device/kernels/simt.h"

namespace winnow::device {

inline constexpr int kNormThreads = 256;
inline constexpr int kLanesOfRow = 8;
inline constexpr int kNormRows = kNormThreads / kLanesOfRow;  // of a block

struct Norms {
  float l1;
  float l2;
};

// Returns the norms of a row, of which `factors` multiply each number if kHasFactors, in each of its eight lanes.
template <class Format, bool kHasFactors = false>
WINNOW_DEVICE Norms norms_of_row(const std::byte* row, int dim, const float* factors = nullptr) {
  float magnitudes = 0.0F, squares = 0.0F;
  for (int word = simt::lane() % kLanesOfRow; word < dim / 8; word += kLanesOfRow) {
    const simt::Words4 words = simt::load_16(row + word * 16);
    WINNOW_UNROLL
    for (int i = 0; i < 4; ++i) {
      float low = Format::low(words.x[i]), high = Format::high(words.x[i]);
      if constexpr (kHasFactors) {
        low *= factors[word * 8 + 2 * i];
        high *= factors[word * 8 + 2 * i + 1];
      }
      magnitudes += simt::max(low, -low) + simt::max(high, -high);
      squares = simt::fma(low, low, simt::fma(high, high, squares));
    }
  }
  return {simt::sum_lanes<1, kLanesOfRow>(magnitudes), simt::sqrt(simt::sum_lanes<1, kLanesOfRow>(squares))};
}

// Block (x, y) takes entries of KV head y.
template <class KeyFormat, class ValueFormat>
WINNOW_KERNEL void WINNOW_THREADS(kNormThreads, 4) row_norms_kernel(RowNorms p) {
  const int head = simt::block_y();
  const HeadTable table = p.heads[head];
  const std::int32_t entry = simt::block_x() * kNormRows + simt::thread() / kLanesOfRow;
  const bool is_entry = entry < table.n_entries;
  // Lanes of a warp stay together: those without an entry read the last one's rows.
  const std::int32_t slot = table.first_slot + (is_entry ? entry : table.n_entries - 1);
  if (table.n_entries <= 0) return;
  const PageRows page = table.pages[slot / kPageEntries];
  const std::int32_t row = slot % kPageEntries;
  const bool writes = is_entry && simt::lane() % kLanesOfRow == 0;
  const std::int64_t at = static_cast<std::int64_t>(head) * p.stride + entry;
  if (p.key_l2 != nullptr) {
    const int dim = p.layer.key_dim;
    const std::byte* const key = page.keys + row * dim * 2;
    const Norms norms = p.key_factors == nullptr ? norms_of_row<KeyFormat>(key, dim)
                                                 : norms_of_row<KeyFormat, true>(key, dim, p.key_factors + head * dim);
    if (writes) p.key_l2[at] = norms.l2;
  }
  if (p.value_l1 != nullptr || p.value_l2 != nullptr) {
    const Norms norms = norms_of_row<ValueFormat>(page.values + row * p.layer.value_dim * 2, p.layer.value_dim);
    if (writes && p.value_l1 != nullptr) p.value_l1[at] = norms.l1;
    if (writes && p.value_l2 != nullptr) p.value_l2[at] = norms.l2;
  }
}

template <class KeyFormat, class ValueFormat>
void queue_norms_of_types(simt::Queue& queue, const RowNorms& plan) {
  const simt::Grid grid = {.x = static_cast<unsigned>((plan.n_most + kNormRows - 1) / kNormRows),
                           .y = static_cast<unsigned>(plan.layer.n_kv_head)};
  simt::launch(queue, grid, kNormThreads, 0, row_norms_kernel<KeyFormat, ValueFormat>, plan);
}

// Queues the norms whose pointers are not null.
inline void queue_row_norms(simt::Queue& queue, const RowNorms& plan) {
  if (plan.n_most <= 0) return;
  const bool has_bf16_keys = plan.layer.key_type == EntryType::kBF16;
  const bool has_bf16_values = plan.layer.value_type == EntryType::kBF16;
  if (has_bf16_keys && has_bf16_values) {
    queue_norms_of_types<BF16Format, BF16Format>(queue, plan);
  } else if (has_bf16_keys) {
    queue_norms_of_types<BF16Format, F16Format>(queue, plan);
  } else if (has_bf16_values) {
    queue_norms_of_types<F16Format, BF16Format>(queue, plan);
  } else {
    queue_norms_of_types<F16Format, F16Format>(queue, plan);
  }
}

template <class Plan>
WINNOW_KERNEL void WINNOW_THREADS(kNormThreads, 4) row_lengths_kernel(Plan p) {
  const int row = simt::block_x() * (kNormThreads / 32) + simt::warp();
  if (row >= p.n_rows) return;
  const float* const from = p.rows + static_cast<std::int64_t>(row) * p.n;
  float squares = 0.0F;
  for (int i = simt::lane() * 4; i < p.n; i += 128) {
    const FourFloats four = *reinterpret_cast<const FourFloats*>(from + i);
    WINNOW_UNROLL
    for (int j = 0; j < 4; ++j) squares = simt::fma(four.x[j], four.x[j], squares);
  }
  squares = simt::sum_lanes<1, 32>(squares);
  if (simt::lane() == 0) p.lengths[row] = simt::sqrt(squares);
}

// Queues the lengths. Rows are 16-byte aligned.
inline void queue_row_lengths(simt::Queue& queue, const RowLengths& plan) {
  constexpr int kRows = kNormThreads / 32;
  simt::launch(queue, {.x = static_cast<unsigned>((plan.n_rows + kRows - 1) / kRows)}, kNormThreads, 0,
               row_lengths_kernel<RowLengths>, plan);
}

}  // namespace winnow::device
