// Stores rows of a batch in the pages of their heads, in 16 bits per number.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/kernel_plans.h"
#include "device/kernels/rows-inl.h"
#include "device/kernels/simt.h"

namespace winnow::device {
namespace store {

inline constexpr int kThreads = 128;

// Stores the eight numbers at `from`.
WINNOW_DEVICE void store_eight(bool is_bf16, const float* from, std::byte* to) {
  const simt::Words4 low = simt::load_16(from);
  const simt::Words4 high = simt::load_16(from + 4);
  simt::Words4 words;
  WINNOW_UNROLL
  for (int i = 0; i < 2; ++i) {
    words.x[i] = pack_row_numbers(is_bf16, simt::float_of(low.x[2 * i]), simt::float_of(low.x[2 * i + 1]));
    words.x[2 + i] = pack_row_numbers(is_bf16, simt::float_of(high.x[2 * i]), simt::float_of(high.x[2 * i + 1]));
  }
  simt::store_16(to, words);
}

// Each thread stores eight numbers of a row of keys and values; block_y is the KV head.
WINNOW_KERNEL void WINNOW_THREADS(kThreads, 8) store_rows(StoreRows plan) {
  const LayerAttention& layer = plan.layer;
  const int key_eighths = layer.key_dim / 8;
  const int eighths = key_eighths + layer.value_dim / 8;
  const std::int64_t i = std::int64_t{simt::block_x()} * kThreads + simt::thread();
  if (i >= std::int64_t{plan.n_rows} * eighths) return;
  const auto row = static_cast<std::int32_t>(i / eighths);
  const auto eighth = static_cast<int>(i % eighths);
  const HeadTable head = load_head(plan.heads, simt::block_y());
  const std::int32_t slot = head.first_slot + head.n_entries - plan.n_rows + row;
  const PageRows page = load_page(head.pages, slot / kPageSlots);
  const std::int64_t from_row = std::int64_t{row} * layer.n_kv_head + simt::block_y();
  const int in_page = slot % kPageSlots;
  if (eighth < key_eighths) {
    store_eight(layer.key_type == EntryType::kBF16, plan.k + from_row * layer.key_dim + 8 * eighth,
                page.keys + 2 * (in_page * layer.key_dim + 8 * eighth));
  } else {
    const int e = eighth - key_eighths;
    store_eight(layer.value_type == EntryType::kBF16, plan.v + from_row * layer.value_dim + 8 * e,
                page.values + 2 * (in_page * layer.value_dim + 8 * e));
  }
}

}  // namespace store

inline void queue_store_rows(simt::Queue& queue, const StoreRows& plan) {
  const std::int64_t n = std::int64_t{plan.n_rows} * (plan.layer.key_dim / 8 + plan.layer.value_dim / 8);
  const auto n_blocks = static_cast<unsigned>((n + store::kThreads - 1) / store::kThreads);
  simt::launch(queue, {n_blocks, static_cast<unsigned>(plan.layer.n_kv_head)}, store::kThreads, 0, store::store_rows,
               plan);
}

}  // namespace winnow::device
