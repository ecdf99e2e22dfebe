// Ragged decode attention: one new row for each of many sequences, over pages of f16, bf16 or codes, where each head
// has its own length. Blocks take slices of heads (step_slices-inl.h); a slice is computed for the (up to eight) query
// heads of a KV head at once, by a block's four warps, which take tiles of 16 entries in turn (step_tiles-inl.h).
//
// States of warps are merged in shared memory. The block that finishes a head's last slice merges the states of its
// slices, in their order.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/kernel_plans.h"
#include "device/kernels/rows-inl.h"
#include "device/kernels/simt.h"
#include "device/kernels/step_slices-inl.h"
#include "device/kernels/step_tiles-inl.h"

namespace winnow::device {
namespace step {

// The workspace: counters of finished slices [n_sequences][n_head], then the slices' outputs and states.
struct Workspace {
  int* finished;
  float* out;    // [n_sequences][n_head][kMaxStepSlices][value_dim]
  float* state;  // [n_sequences][n_head][kMaxStepSlices][2] the exponent of the weights' unit, and their sum
};

WINNOW_DEVICE Workspace workspace_of(const StepAttention& plan) {
  const std::size_t n_rows = static_cast<std::size_t>(plan.n_sequences) * static_cast<std::size_t>(plan.layer.n_head);
  auto* out = reinterpret_cast<float*>(plan.workspace + (n_rows * sizeof(int) + 255) / 256 * 256);
  return {reinterpret_cast<int*>(plan.workspace), out,
          out + n_rows * kMaxStepSlices * static_cast<std::size_t>(plan.layer.value_dim)};
}

// The block's shared memory.
template <class V>
struct Shared {
  // Rows of O start in different banks.
  static constexpr int kOutStride = 64 * V::kValueChunks + 20;

  typename WarpState<V>::Query q[V::kHasCodes ? 2 : 1];  // the query, and its rotation
  union {
    float out[kWarps][kHeads][kOutStride];
    float factors[kHeads][kMaxStepSlices];
  };
  simt::Words4 pages[kWarps][32];  // PageRows of the warp's next tiles
  float unit[kWarps][kHeads];
  float sum[kWarps][kHeads];
  ItemList items;
  int is_last;
};

// The thread's part of an item's query rows.
template <int kKeyChunks, bool kBf16Keys>
class QueryPart {
 public:
  // Rotates the rows, in blocks of a power of two numbers. A block's numbers are those of neighbouring lanes.
  WINNOW_DEVICE void rotate(int block) {
    static_assert((kEighths & (kEighths - 1)) == 0 && kThreads % kEighths == 0);
    WINNOW_UNROLL
    for (int n = 0; n < kCount; ++n) {
      if (place(n) >= kHeads * kEighths) continue;
      float x[8];
      WINNOW_UNROLL
      for (int i = 0; i < 8; ++i) x[i] = simt::float_of(numbers_[n][i / 4].x[i % 4]);
      rotate_eighths(x, block);
      WINNOW_UNROLL
      for (int i = 0; i < 8; ++i) numbers_[n][i / 4].x[i % 4] = simt::bits_of(x[i]);
    }
  }

  WINNOW_DEVICE void load(const StepAttention& plan, const Item& item) {
    const int key_dim = plan.layer.key_dim;
    const float* q = plan.q + static_cast<std::size_t>(item.query_row) * static_cast<std::size_t>(key_dim);
    WINNOW_UNROLL
    for (int n = 0; n < kCount; ++n) {
      const int head = place(n) / kEighths;
      const int first = 8 * (place(n) % kEighths);
      numbers_[n][0] = numbers_[n][1] = {};
      if (head >= item.n_heads || first >= key_dim) continue;
      numbers_[n][0] = simt::load_16(q + head * key_dim + first);
      numbers_[n][1] = simt::load_16(q + head * key_dim + first + 4);
    }
  }

  // Scales the rows, splits them and writes them to shared memory; zeros for missing heads.
  WINNOW_DEVICE void write(float scale, simt::Words4 (&to)[2][kKeyChunks][32]) const {
    WINNOW_UNROLL
    for (int n = 0; n < kCount; ++n) {
      if (place(n) >= kHeads * kEighths) continue;
      simt::Words4 high;
      simt::Words4 low;
      WINNOW_UNROLL
      for (int w = 0; w < 4; ++w) {
        const std::uint32_t* pair = &numbers_[n][w / 2].x[w % 2 * 2];
        split<kBf16Keys>(simt::float_of(pair[0]) * scale, simt::float_of(pair[1]) * scale, high.x[w], low.x[w]);
      }
      const int eighth = place(n) % kEighths;
      const int lane = 4 * (place(n) / kEighths) + eighth % 4;
      to[0][eighth / 4][lane] = high;
      to[1][eighth / 4][lane] = low;
    }
  }

 private:
  static constexpr int kEighths = 4 * kKeyChunks;  // of a row, eight numbers each
  static constexpr int kCount = (kHeads * kEighths + kThreads - 1) / kThreads;

  static WINNOW_DEVICE int place(int n) { return simt::thread_anew() + n * kThreads; }

  simt::Words4 numbers_[kCount][2];
};

// Returns the weight of a sink logit, in a state's unit.
WINNOW_DEVICE float sink_weight(const LayerAttention& layer, int head, float unit) {
  return layer.sink_logits == nullptr ? 0.0F : simt::exp2(layer.sink_logits[head] * kLog2e - unit);
}

// Merges the warps' states of a slice. Writes the result to the output if the head has no other slice, else to the
// workspace.
template <class SharedMemory>
WINNOW_DEVICE void merge_warps(const StepAttention& plan, const SharedMemory& shared) {
  const Item item = shared.items.item;
  const LayerAttention& layer = plan.layer;
  const int quarters = layer.value_dim / 4;
  for (int i = simt::thread_anew(); i < item.n_heads * quarters; i += kThreads) {
    const int h = i / quarters;
    const int d = i % quarters * 4;
    float unit = shared.unit[0][h];
    WINNOW_UNROLL
    for (int w = 1; w < kWarps; ++w) unit = simt::max(unit, shared.unit[w][h]);
    if (unit == kNoScore) unit = 0;
    float sum = 0;
    float out[4] = {};
    WINNOW_UNROLL
    for (int w = 0; w < kWarps; ++w) {
      const float factor = simt::exp2(shared.unit[w][h] - unit);
      sum += factor * shared.sum[w][h];
      WINNOW_UNROLL
      for (int x = 0; x < 4; ++x) out[x] += factor * shared.out[w][h][d + x];
    }
    const auto row = static_cast<std::size_t>(item.query_row + h);
    float* to = plan.out + row * static_cast<std::size_t>(layer.value_dim) + d;
    float factor = 1;
    if (item.n_slices == 1) {
      sum += sink_weight(layer, item.first_head + h, unit);
      factor = sum > 0 ? 1 / sum : 0.0F;
    } else {
      const Workspace workspace = workspace_of(plan);
      const std::size_t at = row * kMaxStepSlices + static_cast<std::size_t>(item.slice);
      to = workspace.out + at * static_cast<std::size_t>(layer.value_dim) + d;
      if (d == 0) {
        workspace.state[2 * at] = unit;
        workspace.state[2 * at + 1] = sum;
      }
    }
    simt::store_16(to, {{simt::bits_of(out[0] * factor), simt::bits_of(out[1] * factor), simt::bits_of(out[2] * factor),
                         simt::bits_of(out[3] * factor)}});
  }
}

// Merges the slices' states of a head, in their order.
template <class SharedMemory>
WINNOW_DEVICE void merge_slices(const StepAttention& plan, SharedMemory& shared) {
  const Item item = shared.items.item;
  const LayerAttention& layer = plan.layer;
  const Workspace workspace = workspace_of(plan);
  static_assert(kMaxStepSlices == 64);
  for (int h = simt::warp(); h < item.n_heads; h += kWarps) {
    const float* state = workspace.state + static_cast<std::size_t>(item.query_row + h) * kMaxStepSlices * 2;
    float unit[2], sum[2];
    WINNOW_UNROLL
    for (int x = 0; x < 2; ++x) {
      const int slice = simt::lane() + 32 * x;
      unit[x] = slice < item.n_slices ? state[2 * slice] : kNoScore;
      sum[x] = slice < item.n_slices ? state[2 * slice + 1] : 0.0F;
    }
    const float most = simt::max_lanes<1, 32>(simt::max(unit[0], unit[1]));
    const float factor[2] = {simt::exp2(unit[0] - most), simt::exp2(unit[1] - most)};
    float total = simt::sum_lanes<1, 32>(factor[0] * sum[0] + factor[1] * sum[1]);
    total += sink_weight(layer, item.first_head + h, most);
    const float share = total > 0 ? 1 / total : 0.0F;
    WINNOW_UNROLL
    for (int x = 0; x < 2; ++x) shared.factors[h][simt::lane() + 32 * x] = factor[x] * share;
  }
  simt::barrier();
  const int quarters = layer.value_dim / 4;
  for (int i = simt::thread_anew(); i < item.n_heads * quarters; i += kThreads) {
    const int h = i / quarters;
    const int d = i % quarters * 4;
    const auto row = static_cast<std::size_t>(item.query_row + h);
    const auto value_dim = static_cast<std::size_t>(layer.value_dim);
    const float* from = workspace.out + row * kMaxStepSlices * value_dim + d;
    float out[4] = {};
    constexpr int kAtOnce = 16;
    WINNOW_NO_UNROLL
    for (int first = 0; first < item.n_slices; first += kAtOnce) {
      simt::Words4 words[kAtOnce];
      WINNOW_UNROLL
      for (int s = 0; s < kAtOnce; ++s) {
        words[s] = {};
        if (first + s < item.n_slices) words[s] = simt::load_16(from + static_cast<std::size_t>(first + s) * value_dim);
      }
      WINNOW_UNROLL
      for (int s = 0; s < kAtOnce; ++s) {
        const float factor = shared.factors[h][first + s];
        WINNOW_UNROLL
        for (int x = 0; x < 4; ++x) out[x] += factor * simt::float_of(words[s].x[x]);
      }
    }
    simt::store_16(plan.out + row * value_dim + d,
                   {{simt::bits_of(out[0]), simt::bits_of(out[1]), simt::bits_of(out[2]), simt::bits_of(out[3])}});
  }
}

// The thread's part of the step's own row, if the slice is a head's last: two numbers of the key and of the value.
// Every part of a group stores the same bytes and reads its own.
class OwnRowPart {
 public:
  WINNOW_DEVICE void load(const StepAttention& plan, const Item& item, const Cut& cut) {
    const LayerAttention& layer = plan.layer;
    static_assert(2 * kThreads >= 256);  // the most numbers of a row
    const int at = 2 * simt::thread_anew();
    const bool stores = item.slice == cut.n_slices - 1 && plan.k != nullptr;
    has_key_ = stores && at < layer.key_dim;
    has_value_ = stores && at < layer.value_dim;
    if (!has_key_ && !has_value_) return;
    const int slot = cut.end_slot - 1;
    page_ = load_page(item.head.pages, slot / kPageSlots);
    in_page_ = slot % kPageSlots;
    const auto row = static_cast<std::size_t>(item.row);
    WINNOW_UNROLL
    for (int x = 0; x < 2; ++x) {
      if (has_key_) key_[x] = plan.k[row * static_cast<std::size_t>(layer.key_dim) + at + x];
      if (has_value_) value_[x] = plan.v[row * static_cast<std::size_t>(layer.value_dim) + at + x];
    }
  }

  WINNOW_DEVICE void store(const LayerAttention& layer) const {
    const int at = 2 * simt::thread_anew();
    if (has_key_) {
      *reinterpret_cast<std::uint32_t*>(page_.keys + 2 * (in_page_ * layer.key_dim + at)) =
          pack_row_numbers(layer.key_type == EntryType::kBF16, key_[0], key_[1]);
    }
    if (has_value_) {
      *reinterpret_cast<std::uint32_t*>(page_.values + 2 * (in_page_ * layer.value_dim + at)) =
          pack_row_numbers(layer.value_type == EntryType::kBF16, value_[0], value_[1]);
    }
  }

 private:
  bool has_key_ = false;
  bool has_value_ = false;
  PageRows page_ = {};
  int in_page_ = 0;
  float key_[2] = {};
  float value_[2] = {};
};

// Returns true in all threads of the block that finishes last among a head's slices.
template <class SharedMemory>
WINNOW_DEVICE bool is_last_slice(const StepAttention& plan, SharedMemory& shared) {
  simt::barrier();
  if (simt::thread_anew() == 0) {
    simt::fence();  // also covers writes of the block's other threads before the barrier
    const Item item = shared.items.item;
    int* finished = workspace_of(plan).finished + item.row * shared.items.n_parts + item.part;
    const bool is_last = simt::atomic_add(finished, 1) == item.n_slices - 1;
    if (is_last) *finished = 0;
    shared.is_last = is_last ? 1 : 0;
    simt::fence();
  }
  simt::barrier();
  return shared.is_last != 0;
}

template <class V>
WINNOW_KERNEL void WINNOW_THREADS(kThreads, kBlocks<V>) attend(StepAttention plan) {
  using SharedMemory = Shared<V>;
  auto& shared = *reinterpret_cast<SharedMemory*>(simt::shared());
  list_items(plan, shared.items);
  simt::barrier();
  // Data that is needed after the loop over entries is read from shared memory again, since the loop leaves no
  // registers for it.
  while (shared.items.next < shared.items.n_items) {
    find_item(plan, shared.items);
    simt::barrier();
    {
      const Item item = shared.items.item;
      const Cut cut = cut_head(item.head, plan.layer.sliding_window);
      WarpState<V> state(plan.layer, cut);
      constexpr int kPageTiles = kPageSlots / kTile;
      const int first_page = cut.first_page + item.slice * cut.slice_pages;
      const int first_tile = simt::max(first_page * kPageTiles, cut.first_slot / kTile);
      const int end_tile = simt::min((first_page + cut.slice_pages) * kPageTiles, (cut.end_slot + kTile - 1) / kTile);
      // The warp's number is shuffled, so that compilers know that it is uniform over the warp.
      auto& pages = shared.pages[simt::warp()];
      // All loads from memory are issued before any result is used.
      const simt::Words4 rows =
          state.find_pages(first_tile + simt::shuffle(simt::warp(), 0), end_tile, item.head.pages);
      QueryPart<V::kKeyChunks, V::kBf16Keys> queries;
      queries.load(plan, item);
      OwnRowPart own_row;
      own_row.load(plan, item, cut);
      state.write_pages(rows, pages);
      queries.write(shared.items.scale, shared.q[0]);
      if constexpr (V::kHasCodes) {
        queries.rotate(rotated_block(plan.layer.key_dim));
        queries.write(shared.items.scale, shared.q[1]);
      }
      own_row.store(plan.layer);
      simt::barrier();

      state.attend(shared.q, plan.layer.soft_cap, shared.items.item, pages);
      state.write(shared);
      simt::barrier();
    }
    if (simt::thread_anew() == 0) shared.items.next += simt::grid_x();
    merge_warps(plan, shared);
    if (shared.items.item.n_slices > 1 && is_last_slice(plan, shared)) merge_slices(plan, shared);
    simt::barrier();
  }
}

template <class V>
void queue_variant(simt::Queue& queue, const StepAttention& plan) {
  const auto kernel = attend<V>;
  constexpr std::size_t shared_bytes = sizeof(Shared<V>);
  const int n_group = plan.layer.n_head / plan.layer.n_kv_head;
  const int n_most = plan.n_sequences * plan.layer.n_kv_head * ((n_group + kHeads - 1) / kHeads) * kMaxStepSlices;
  const int n_resident = simt::resident_blocks(queue, kThreads, shared_bytes, kernel);
  const auto n_blocks = static_cast<unsigned>(n_most < n_resident ? n_most : n_resident);
  simt::launch(queue, {n_blocks}, kThreads, shared_bytes, kernel, plan);
}

// Queues the kernel for these sizes and the types of the plan.
template <int kKeyChunks, int kValueChunks, bool kIsPadded>
void queue_of_size(simt::Queue& queue, const StepAttention& plan) {
  const bool has_bf16_keys = plan.layer.key_type == EntryType::kBF16;
  const bool has_bf16_values = plan.layer.value_type == EntryType::kBF16;
  const auto queue_types =
      has_bf16_keys
          ? (has_bf16_values ? queue_variant<Variant<kKeyChunks, kValueChunks, kIsPadded, true, true, false>>
                             : queue_variant<Variant<kKeyChunks, kValueChunks, kIsPadded, true, false, false>>)
          : (has_bf16_values ? queue_variant<Variant<kKeyChunks, kValueChunks, kIsPadded, false, true, false>>
                             : queue_variant<Variant<kKeyChunks, kValueChunks, kIsPadded, false, false, false>>);
  queue_types(queue, plan);
}

template <int kKeyChunks, int kValueChunks, bool kIsPadded>
void queue_codes(simt::Queue& queue, const StepAttention& plan) {
  queue_variant<Variant<kKeyChunks, kValueChunks, kIsPadded, false, false, true>>(queue, plan);
}

}  // namespace step

inline void queue_step_attention(simt::Queue& queue, const StepAttention& plan) {
  const int key_dim = plan.layer.key_dim;
  const int value_dim = plan.layer.value_dim;
  if (plan.has_codes) {
    if (key_dim == 64 && value_dim == 64) return step::queue_codes<2, 1, false>(queue, plan);
    if (key_dim == 128 && value_dim == 128) return step::queue_codes<4, 2, false>(queue, plan);
    if (key_dim <= 128 && value_dim <= 128) return step::queue_codes<4, 2, true>(queue, plan);
    return step::queue_codes<8, 4, true>(queue, plan);
  }
  if (key_dim == 64 && value_dim == 64) return step::queue_of_size<2, 1, false>(queue, plan);
  if (key_dim == 128 && value_dim == 128) return step::queue_of_size<4, 2, false>(queue, plan);
  if (key_dim == 256 && value_dim == 256) return step::queue_of_size<8, 4, false>(queue, plan);
  if (key_dim <= 96 && value_dim <= 128) return step::queue_of_size<3, 2, true>(queue, plan);
  step::queue_of_size<8, 4, true>(queue, plan);
}

}  // namespace winnow::device
