// Sums of stored keys. Threads of a row take two numbers each; the rows that a block reads at once are added up last.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/kernel_plans.h"
#include "device/kernels/rows-inl.h"
#include "device/kernels/simt.h"

namespace winnow::device {
namespace key_sums {

inline constexpr int kThreads = 128;

// Block (x, y) takes slice x of KV head y.
template <class Plan>
WINNOW_KERNEL void WINNOW_THREADS(kThreads, 8) sum(Plan plan) {
  const HeadTable head = load_head(plan.heads, simt::block_y());
  const int words = plan.layer.key_dim / 2, n_at_once = kThreads / words;
  const int row = simt::thread() / words, word = simt::thread() % words;
  const bool is_bf16 = plan.layer.key_type == EntryType::kBF16;
  const int begin = simt::max(plan.first, simt::block_x() * kKeySumEntries);
  const int end = simt::min(head.n_entries, (simt::block_x() + 1) * kKeySumEntries);
  float low = 0, high = 0;
  WINNOW_NO_UNROLL
  for (int entry = begin + row; entry < end && row < n_at_once; entry += n_at_once) {
    const int slot = head.first_slot + entry;
    const std::byte* key = load_page(head.pages, slot / kPageSlots).keys + 2 * (slot % kPageSlots) * plan.layer.key_dim;
    const std::uint32_t two = reinterpret_cast<const std::uint32_t*>(key)[word];
    float factor = 1;
    if (plan.lengths != nullptr) {
      const float length = plan.lengths[static_cast<std::int64_t>(simt::block_y()) * plan.n_most + entry];
      factor = length == 0 ? 0.0F : 1 / length;
    }
    low = simt::fma(factor, is_bf16 ? simt::low_bf16(two) : simt::low_f16(two), low);
    high = simt::fma(factor, is_bf16 ? simt::high_bf16(two) : simt::high_f16(two), high);
  }
  auto* sums = reinterpret_cast<float*>(simt::shared());  // [kThreads][2]
  sums[2 * simt::thread()] = low;
  sums[2 * simt::thread() + 1] = high;
  simt::barrier();
  if (row > 0) return;
  for (int other = 1; other < n_at_once; ++other) {
    low += sums[2 * (other * words + word)];
    high += sums[2 * (other * words + word) + 1];
  }
  float* to = plan.sums + (static_cast<std::size_t>(simt::block_y()) * static_cast<std::size_t>(simt::grid_x()) +
                           static_cast<std::size_t>(simt::block_x())) *
                              static_cast<std::size_t>(plan.layer.key_dim);
  to[2 * word] = low;
  to[2 * word + 1] = high;
}

}  // namespace key_sums

inline void queue_key_sums(simt::Queue& queue, const KeySums& plan) {
  const simt::Grid grid = {.x = static_cast<unsigned>(key_sum_slices(plan.n_most)),
                           .y = static_cast<unsigned>(plan.layer.n_kv_head)};
  simt::launch(queue, grid, key_sums::kThreads, key_sums::kThreads * 2 * sizeof(float), key_sums::sum<KeySums>, plan);
}

}  // namespace winnow::device
