// How the work of a step's attention is divided: a head's entries are cut into slices of whole pages that depend on the
// head's own length alone, so that a sequence gets the same bits alone and in a batch. Blocks take the slices of all
// heads in turn.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/kernel_plans.h"
#include "device/kernels/rows-inl.h"
#include "device/kernels/simt.h"

namespace winnow::device::step {

inline constexpr int kThreads = 128;
inline constexpr int kWarps = kThreads / 32;
inline constexpr int kHeads = 8;  // query heads at once
inline constexpr int kLeastSlicePages = 8;
inline constexpr float kLog2e = 1.44269504088896F;

// The slots (first_slot + entry) of a head that the row sees, and their slices.
struct Cut {
  int first_slot, end_slot;
  int first_page, end_page;
  int slice_pages;
  int n_slices;
};

WINNOW_DEVICE Cut cut_head(const HeadTable& head, int window) {
  Cut cut;
  const int hidden = window > 0 ? simt::max(0, head.n_entries - window) : 0;
  cut.first_slot = head.first_slot + hidden;
  cut.end_slot = head.first_slot + head.n_entries;
  cut.first_page = cut.first_slot / kPageSlots;
  cut.end_page = simt::max((cut.end_slot + kPageSlots - 1) / kPageSlots, cut.first_page + 1);
  const int n_pages = cut.end_page - cut.first_page;
  cut.slice_pages = simt::max(kLeastSlicePages, (n_pages + kMaxStepSlices - 1) / kMaxStepSlices);
  cut.n_slices = (n_pages + cut.slice_pages - 1) / cut.slice_pages;
  return cut;
}

// A block's unit of work: a slice, for some of the query heads of its KV head.
struct Item {
  int row;  // sequence x KV head
  int part;
  int slice;
  int n_slices;
  int first_head, n_heads;
  int query_row;  // sequence x query head, of the first head
  HeadTable head;
};

// The list of slices of all heads, of which each thread knows those of n_own rows. It lies in shared memory to spare
// registers.
struct ItemList {
  int own[kThreads];     // slices of the thread's rows
  int before[kThreads];  // slices of the rows before
  int of_warp[kWarps];
  int n_parts;  // of a KV head's group
  int n_items;
  int next;     // item
  float scale;  // of queries
  Item item;    // the item that was found last
};

WINNOW_DEVICE int rows_per_thread(const StepAttention& plan) {
  return (plan.n_sequences * plan.layer.n_kv_head + kThreads - 1) / kThreads;
}

// Makes the list. All threads call it, and may read the list after a barrier.
WINNOW_DEVICE void list_items(const StepAttention& plan, ItemList& list) {
  const int n_own = rows_per_thread(plan);
  const int first = simt::thread() * n_own;
  const int end = simt::min(first + n_own, plan.n_sequences * plan.layer.n_kv_head);
  int own = 0;
  constexpr int kAtOnce = 4;
  WINNOW_NO_UNROLL
  for (int row = first; row < end; row += kAtOnce) {
    HeadTable heads[kAtOnce];
    WINNOW_UNROLL
    for (int x = 0; x < kAtOnce; ++x) heads[x] = load_head(plan.heads, simt::min(row + x, end - 1));
    WINNOW_UNROLL
    for (int x = 0; x < kAtOnce; ++x) own += row + x < end ? cut_head(heads[x], plan.layer.sliding_window).n_slices : 0;
  }
  int sum = own;  // of the warp's lanes up to this one
  WINNOW_UNROLL
  for (int step = 1; step < 32; step *= 2) {
    const int lower = simt::shuffle(sum, simt::max(0, simt::lane() - step));
    if (simt::lane() >= step) sum += lower;
  }
  if (simt::lane() == 31) list.of_warp[simt::warp()] = sum;
  simt::barrier();
  int before = sum - own;
  int n_slices = 0;
  WINNOW_UNROLL
  for (int w = 0; w < kWarps; ++w) {
    if (w < simt::warp()) before += list.of_warp[w];
    n_slices += list.of_warp[w];
  }
  list.own[simt::thread()] = own;
  list.before[simt::thread()] = before;
  if (simt::thread() == 0) {
    list.n_parts = (plan.layer.n_head / plan.layer.n_kv_head + kHeads - 1) / kHeads;
    list.n_items = n_slices * list.n_parts;
    list.next = simt::block_x();
    // If scores are capped, capping scales them to binary logarithms.
    list.scale = plan.layer.soft_cap > 0 ? plan.layer.scale : plan.layer.scale * kLog2e;
  }
}

// The thread to whose rows the next item belongs writes it to the list.
WINNOW_DEVICE void find_item(const StepAttention& plan, ItemList& list) {
  const int i = list.next;
  int slice = i / list.n_parts - list.before[simt::thread_anew()];
  if (slice < 0 || slice >= list.own[simt::thread_anew()]) return;
  int row = simt::thread_anew() * rows_per_thread(plan);
  HeadTable head = load_head(plan.heads, row);
  int n_slices = cut_head(head, plan.layer.sliding_window).n_slices;
  WINNOW_NO_UNROLL
  while (slice >= n_slices) {
    slice -= n_slices;
    head = load_head(plan.heads, ++row);
    n_slices = cut_head(head, plan.layer.sliding_window).n_slices;
  }
  if (plan.has_codes) head.origin = plan.heads[row].origin;
  const LayerAttention& layer = plan.layer;
  const int n_group = layer.n_head / layer.n_kv_head;
  const int part = i % list.n_parts;
  const int first_head = row % layer.n_kv_head * n_group + part * kHeads;
  list.item = {row,
               part,
               slice,
               n_slices,
               first_head,
               simt::min(kHeads, n_group - part * kHeads),
               row / layer.n_kv_head * layer.n_head + first_head,
               head};
}

}  // namespace winnow::device::step
