// CausalAttention for GPUs of compute capability 9.0, after FlashAttention-3 (arXiv 2407.08608): one warpgroup copies
// tiles of keys and values, and two or three others have 64 rows each. A tile's scores are computed while the values of
// the previous tile are added, and the softmax of one warpgroup runs while another computes products.
#pragma once

#include "device/kernels/causal_attention-inl.h"
#include "device/kernels/warpgroup-inl.h"

#ifdef __CUDACC__
#include <cstdlib>
#include <cstring>
#include <type_traits>

namespace winnow::device {

// Blocks of kGroups * 64 rows, tiles of kEntries slots, rows of up to kDim numbers. With kTurns, the warpgroups take
// turns in beginning their products.
template <class Format, int kDim, int kGroups, int kEntries, bool kTurns>
struct Sm90CausalBlocks {
  static constexpr bool kIsBF16 = std::is_same_v<Format, BF16Format>;
  static constexpr int kGroupRows = 64;
  static constexpr int kGroupThreads = 128;
  static constexpr int kRows = kGroups * kGroupRows;
  static constexpr int kThreads = (kGroups + 1) * kGroupThreads;
  static constexpr int kStages = 2;
  static constexpr int kPages = kEntries / kPageEntries;
  static constexpr int kWords = kDim / 8;  // of 16 bytes
  static constexpr int kMatrixBlocks = (kDim + warpgroup::kBlockColumns - 1) / warpgroup::kBlockColumns;
  static constexpr int kQueryBlockBytes = kRows * warpgroup::kRowBytes;
  static constexpr int kTileBlockBytes = kEntries * warpgroup::kRowBytes;
  static constexpr int kTileBytes = kMatrixBlocks * kTileBlockBytes;
  static constexpr int kSharedBytes =
      warpgroup::kBlockAlignment + kMatrixBlocks * kQueryBlockBytes + 2 * kStages * kTileBytes;
  // The registers of copying and of computing threads: the kernel begins with an equal share.
  static constexpr int kCopyRegisters = kGroups == 2 ? 40 : 32;
  static constexpr int kComputeRegisters = kGroups == 2 ? 232 : 160;
  // Outputs are computed in parts, as a product has at most 128 columns here.
  static constexpr int kParts = kDim > 128 ? kDim / 128 : 1;
  static constexpr int kPartSums = kDim / kParts / 2;
  static constexpr int kPartOffset = kDim / kParts / warpgroup::kBlockColumns * kTileBlockBytes;
  static_assert(kGroups == 2 || kGroups == 3);
  static_assert(kParts == 1 || kDim % 128 == 0);

  using Scores = float[kEntries / 2];               // as in kEntries / 8 matrices of mma_f16's D
  using Weights = std::uint32_t[kEntries / 16][4];  // as mma_f16's A
  using Outputs = float[kParts][kPartSums];
  using RowNumbers = float[2];  // of rows fragment_row(0) and fragment_row(2)

  // The barriers of a stage's keys and values: one signals that they have arrived, one that they may be overwritten.
  struct Barriers {
    std::uint32_t first;
    WINNOW_DEVICE std::uint32_t keys_came(int stage) const { return first + stage * 8; }
    WINNOW_DEVICE std::uint32_t values_came(int stage) const { return first + (kStages + stage) * 8; }
    WINNOW_DEVICE std::uint32_t keys_read(int stage) const { return first + (2 * kStages + stage) * 8; }
    WINNOW_DEVICE std::uint32_t values_read(int stage) const { return first + (3 * kStages + stage) * 8; }
  };
  static constexpr int kBarriers = 4 * kStages;

  // The tiles that the rows of a block see.
  struct Range {
    HeadTable table;
    std::int32_t first_tile, n_tiles;
    int head, first_row, last_row;
  };
  WINNOW_DEVICE static Range range_of_block(const CausalAttention& p) {
    Range range;
    range.head = simt::block_z() * simt::grid_x() + simt::block_x();
    range.first_row = (simt::grid_y() - 1 - simt::block_y()) * kRows;
    range.last_row = simt::min(range.first_row + kRows, p.n_rows) - 1;
    range.table = p.heads[simt::block_z()];
    const std::int32_t last_slot = slots_of_row(range.table, p.layer.sliding_window, p.n_rows, range.last_row).last;
    range.first_tile = slots_of_row(range.table, p.layer.sliding_window, p.n_rows, range.first_row).first / kEntries;
    const std::int32_t last_tile =
        last_slot <= range.table.first_slot ? range.first_tile : (last_slot + kEntries - 1) / kEntries;
    range.n_tiles = simt::max(last_tile - range.first_tile, 0);
    return range;
  }

  // Each copying thread copies part of a tile: in page `page`, the words `first_word` and every kWordThreads after it
  // of the rows `first_row` and every kRowThreads after it.
  static constexpr int kPageThreads = kGroupThreads / kPages;
  static constexpr int kWordThreads = kWords % 16 == 0 ? 16 : kWords % 8 == 0 ? 8 : 4;
  static constexpr int kRowThreads = kPageThreads / kWordThreads;
  static_assert(kWords % kWordThreads == 0 && kPageThreads % kWordThreads == 0 && kPageEntries % kRowThreads == 0);

  // Starts the copy of this thread's part of a tile. Slots outside the head's entries, which begin `first_slot` slots
  // after the tile's first, and numbers beyond `dim` become zeros.
  WINNOW_DEVICE static void copy_tile(std::uint32_t to, const std::byte* rows, int dim, std::int32_t first_slot,
                                      std::int32_t n_entries) {
    const int thread = simt::thread() % kGroupThreads;
    const int page = thread / kPageThreads;
    const int first_row = thread % kPageThreads / kWordThreads, first_word = thread % kWordThreads;
    to += page * kPageEntries * warpgroup::kRowBytes + warpgroup::word_offset(first_row, first_word, kTileBlockBytes);
    // The row and word bits that this loop adds are disjoint from those of the first row and word, so they change the
    // place within the row independently.
    const auto place = [&](int row, int word) {
      return (to ^ static_cast<std::uint32_t>(((word ^ row) & 7) << 4)) +
             static_cast<std::uint32_t>((word >> 3) * kTileBlockBytes + row * warpgroup::kRowBytes);
    };
    if (first_slot <= 0 && first_slot + n_entries >= kEntries && dim == kDim) {
      const std::byte* const from = rows + (first_row * kDim * 2 + first_word * 16);
      WINNOW_UNROLL
      for (int row = 0; row < kPageEntries; row += kRowThreads) {
        WINNOW_UNROLL
        for (int word = 0; word < kWords; word += kWordThreads) {
          warpgroup::copy_async_16(place(row, word), from + (row * kDim * 2 + word * 16));
        }
      }
    } else {
      first_slot -= page * kPageEntries + first_row;
      const std::byte* from = rows + (first_row * dim * 2 + first_word * 16);
      WINNOW_UNROLL
      for (int row = 0; row < kPageEntries; row += kRowThreads) {
        const bool is_entry = static_cast<unsigned>(row - first_slot) < static_cast<unsigned>(n_entries);
        WINNOW_UNROLL
        for (int word = 0; word < kWords; word += kWordThreads) {
          const bool is_there = is_entry && (first_word + word) * 8 < dim;
          warpgroup::copy_async_16_or_zero(place(row, word), is_there ? from + word * 16 : rows, is_there);
        }
        from += kRowThreads * dim * 2;
      }
    }
  }

  WINNOW_DEVICE static void copy_tiles(const CausalAttention& p, const Range& range, std::uint32_t keys,
                                       std::uint32_t values, Barriers barriers) {
    const HeadTable& table = range.table;
    const int page = simt::thread() % kGroupThreads / kPageThreads;
    const std::int32_t last_page = (table.first_slot + table.n_entries - 1) / kPageEntries;
    const auto page_of = [&](std::int32_t tile) {
      return table.pages[simt::min((range.first_tile + tile) * kPages + page, last_page)];
    };
    if (range.n_tiles == 0) return;
    PageRows next = page_of(0);
    const std::byte* values_before = nullptr;
    WINNOW_NO_UNROLL
    for (std::int32_t tile = 0; tile <= range.n_tiles; ++tile) {
      const PageRows now = next;
      if (tile + 1 < range.n_tiles) next = page_of(tile + 1);  // long before it is used
      if (tile < range.n_tiles) {
        const int stage = tile % kStages;
        if (tile >= kStages) warpgroup::wait(barriers.keys_read(stage), tile / kStages - 1);
        copy_tile(keys + stage * kTileBytes, now.keys, p.layer.key_dim,
                  table.first_slot - (range.first_tile + tile) * kEntries, table.n_entries);
        warpgroup::arrive_after_copies(barriers.keys_came(stage));
      }
      if (tile > 0) {
        const std::int32_t before = tile - 1;
        const int stage = before % kStages;
        if (before >= kStages) warpgroup::wait(barriers.values_read(stage), before / kStages - 1);
        copy_tile(values + stage * kTileBytes, values_before, p.layer.value_dim,
                  table.first_slot - (range.first_tile + before) * kEntries, table.n_entries);
        warpgroup::arrive_after_copies(barriers.values_came(stage));
      }
      values_before = now.values;
    }
    warpgroup::wait_for_all_copies();
  }

  // Converts the warpgroup's rows of q and stores them, with zeros for missing rows.
  WINNOW_DEVICE static void store_queries(const CausalAttention& p, int head, int first_row, std::byte* to) {
    for (int i = simt::thread() % kGroupThreads; i < kGroupRows * kWords; i += kGroupThreads) {
      const int row = i / kWords, word = i % kWords;
      *reinterpret_cast<FourWords*>(to + warpgroup::word_offset(row, word, kQueryBlockBytes)) =
          query_word<Format>(p, head, first_row + row, word);
    }
  }

  WINNOW_DEVICE static void begin_scores(std::uint64_t queries, std::uint64_t keys, Scores& scores) {
    WINNOW_UNROLL
    for (int step = 0; step < kDim / 16; ++step) {
      warpgroup::begin_product<kIsBF16>(scores, queries + warpgroup::columns_offset(step, kQueryBlockBytes),
                                        keys + warpgroup::columns_offset(step, kTileBlockBytes), step > 0 ? 1 : 0);
    }
    warpgroup::commit_products();
  }

  WINNOW_DEVICE static void begin_outputs(const Weights& weights, std::uint64_t values, Outputs& outputs) {
    WINNOW_UNROLL
    for (int step = 0; step < kEntries / 16; ++step) {
      WINNOW_UNROLL
      for (int part = 0; part < kParts; ++part) {
        warpgroup::begin_product<kIsBF16>(outputs[part], weights[step],
                                          values + warpgroup::rows_offset(step) + (part * kPartOffset >> 4));
      }
    }
    warpgroup::commit_products();
  }
  WINNOW_DEVICE static void see_outputs(Outputs& outputs) {
    WINNOW_UNROLL
    for (int part = 0; part < kParts; ++part) warpgroup::see_sums(outputs[part]);
  }

  // Turns scores into cap tanh(scale score / cap), by tanh(x) = 1 - 2 / (1 + e^2x).
  WINNOW_DEVICE static void cap_scores(float scale, float cap, Scores& scores) {
    const float unit = 2.0F * kLog2E * scale / cap;
    WINNOW_UNROLL
    for (float& score : scores) score = cap - 2.0F * cap * reciprocal(1.0F + simt::exp2(score * unit));
  }

  // Masks the scores of slots that a row does not see. Slots count from the tile's first.
  //   row_end: the end of the slots that the warp's first row sees; each next row sees one slot more
  WINNOW_DEVICE static void hide_scores(std::int32_t first_slot, std::int32_t row_end, std::int32_t window,
                                        Scores& scores) {
    const std::int32_t first = first_slot - fragment_column(0);
    const std::int32_t end = row_end + fragment_row(0) - fragment_column(0);
    const std::int32_t begin = window > 0 ? end - window : end - kFarSlots;
    WINNOW_UNROLL
    for (int column = 0; column < kEntries / 8; ++column) {
      WINNOW_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int slot = column * 8 + i % 2;
        const int from_row = slot - i / 2 * 8;
        if (from_row >= end || from_row < begin || slot < first) scores[column * 4 + i] = kHiddenScore;
      }
    }
  }

  // Turns scores into weights relative to the rows' maximum scores so far (times `unit`), and rescales the sums to
  // these maxima; `corrections` are the factors for the outputs.
  WINNOW_DEVICE static void weigh_scores(float unit, Scores& scores, RowNumbers& greatest, RowNumbers& sums,
                                         RowNumbers& corrections) {
    WINNOW_UNROLL
    for (int half = 0; half < 2; ++half) {
      float most[2] = {kHiddenScore, kHiddenScore};
      WINNOW_UNROLL
      for (int column = 0; column < kEntries / 8; ++column) {
        WINNOW_UNROLL
        for (int i = 0; i < 2; ++i) most[i] = simt::max(most[i], scores[column * 4 + half * 2 + i]);
      }
      float high = simt::max_lanes<1, 4>(simt::max(most[0], most[1]));
      high = simt::max(greatest[half], high * unit);
      const float base = high == kHiddenScore ? 0.0F : high;
      corrections[half] = simt::exp2(greatest[half] - base);
      greatest[half] = high;
      float parts[2] = {0.0F, 0.0F};
      WINNOW_UNROLL
      for (int column = 0; column < kEntries / 8; ++column) {
        WINNOW_UNROLL
        for (int i = 0; i < 2; ++i) {
          float& score = scores[column * 4 + half * 2 + i];
          score = simt::exp2(simt::fma(score, unit, -base));
          parts[i] += score;
        }
      }
      sums[half] = simt::fma(sums[half], corrections[half], parts[0] + parts[1]);
    }
  }

  WINNOW_DEVICE static void pack_weights(const Scores& scores, Weights& weights) {
    WINNOW_UNROLL
    for (int step = 0; step < kEntries / 16; ++step) {
      WINNOW_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int at = (step * 2 + i / 2) * 4 + i % 2 * 2;
        weights[step][i] = Format::pack(scores[at], scores[at + 1]);
      }
    }
  }

  // Rescales the outputs. Most tiles do not raise the maximum score of any row.
  WINNOW_DEVICE static void correct_outputs(const RowNumbers& corrections, Outputs& outputs) {
    if (__all_sync(0xFFFFFFFFU, corrections[0] == 1.0F && corrections[1] == 1.0F)) return;
    WINNOW_UNROLL
    for (int part = 0; part < kParts; ++part) {
      WINNOW_UNROLL
      for (int i = 0; i < kPartSums; ++i) outputs[part][i] *= corrections[i / 2 % 2];
    }
  }

  // Writes a warp's rows, except missing ones.
  WINNOW_DEVICE static void store_outputs(const CausalAttention& p, int head, int row, const RowNumbers& greatest,
                                          const RowNumbers& sums, const Outputs& outputs) {
    const float sink = p.layer.sink_logits != nullptr ? p.layer.sink_logits[head] * kLog2E : kHiddenScore;
    WINNOW_UNROLL
    for (int half = 0; half < 2; ++half) {
      const float sum = simt::sum_lanes<1, 4>(sums[half]);
      const float high = simt::max(greatest[half], sink);
      const bool is_blind = high == kHiddenScore;
      const float share = is_blind ? 0.0F : simt::exp2(greatest[half] - high);
      const float total = is_blind ? 0.0F : sum * share + simt::exp2(sink - high);
      const float factor = is_blind ? 0.0F : share / total;
      const int r = row + fragment_row(half * 2);
      if (r >= p.n_rows) continue;
      const std::int64_t at = static_cast<std::int64_t>(r) * p.layer.n_head + head;
      float* to = p.out + at * p.layer.value_dim;
      WINNOW_UNROLL
      for (int column = 0; column < kDim / 8; ++column) {
        if (column * 8 < p.layer.value_dim) {
          const int part = column * 4 / kPartSums, i = column * 4 % kPartSums + half * 2;
          *reinterpret_cast<TwoFloats*>(to + column * 8 + fragment_column(0)) = {outputs[part][i] * factor,
                                                                                 outputs[part][i + 1] * factor};
        }
      }
      if (p.log_sum_exp != nullptr && (simt::lane() & 3) == 0) {
        p.log_sum_exp[at] = is_blind ? kHiddenScore : (high + simt::log2(total)) * kLn2;
      }
    }
  }

  // Computes the rows of one warpgroup, number `group` among those that compute.
  WINNOW_DEVICE static void attend(const CausalAttention& p, const Range& range, int group, std::byte* shared,
                                   std::uint32_t queries_at, std::uint32_t keys_at, std::uint32_t values_at,
                                   Barriers barriers) {
    const std::int32_t window = p.layer.sliding_window;
    const int group_row = range.first_row + group * kGroupRows;
    const int warp_row = group_row + simt::warp() % 4 * 16;
    // The end of the slots that this warp's first row sees; lower than all slots if the warp has no row.
    const std::int32_t row_end =
        warp_row > range.last_row ? -kFarSlots / 2 : slots_of(range.table).last - p.n_rows + 1 + warp_row;

    store_queries(p, range.head, group_row, shared + group * kGroupRows * warpgroup::kRowBytes);
    warpgroup::fence_for_products();
    warpgroup::sync_threads(1 + group, kGroupThreads);

    const std::uint64_t queries =
        warpgroup::matrix_at(queries_at + group * kGroupRows * warpgroup::kRowBytes, kQueryBlockBytes);
    const std::uint64_t keys = warpgroup::matrix_at(keys_at, kTileBlockBytes);
    const std::uint64_t values = warpgroup::matrix_at(values_at, kTileBlockBytes);
    const float cap = p.layer.soft_cap;
    const float unit = cap != 0.0F ? kLog2E : p.layer.scale * kLog2E;

    Outputs outputs;
    WINNOW_UNROLL
    for (int part = 0; part < kParts; ++part) {
      WINNOW_UNROLL
      for (int i = 0; i < kPartSums; ++i) outputs[part][i] = 0.0F;
    }
    RowNumbers greatest = {kHiddenScore, kHiddenScore}, sums = {0.0F, 0.0F}, corrections;
    Scores scores;
    Weights weights;

    const auto keys_of = [&](std::int32_t tile) { return keys + (tile % kStages * kTileBytes >> 4); };
    const auto values_of = [&](std::int32_t tile) { return values + (tile % kStages * kTileBytes >> 4); };
    const auto wait_for = [&](std::uint32_t barrier, std::int32_t tile) {
      warpgroup::wait(barrier, tile / kStages);
      warpgroup::fence_for_products();
    };
    const auto release = [&](std::uint32_t barrier) {
      simt::warp_barrier();
      if (simt::lane() == 0) warpgroup::arrive(barrier);
    };
    const auto weigh = [&](std::int32_t tile) {
      const std::int32_t slot = (range.first_tile + tile) * kEntries;
      if (cap != 0.0F) cap_scores(p.layer.scale, cap, scores);
      if (slot < range.table.first_slot || slot + kEntries > row_end || (window != 0 && slot < row_end + 15 - window)) {
        hide_scores(range.table.first_slot - slot, row_end - slot, window, scores);
      }
      weigh_scores(unit, scores, greatest, sums, corrections);
    };
    // A turn is a barrier for the threads of the group whose turn it is and of the group before it.
    const auto turn = [&](int of) { return 1 + kGroups + of; };
    const bool is_last_group = group == kGroups - 1;

    if (range.n_tiles > 0) {
      if (kTurns && is_last_group && range.n_tiles > 1) warpgroup::arrive_of_threads(turn(0), 2 * kGroupThreads);
      wait_for(barriers.keys_came(0), 0);
      warpgroup::fence_registers();
      begin_scores(queries, keys_of(0), scores);
      warpgroup::wait_for_products<0>();
      warpgroup::see_sums(scores);
      release(barriers.keys_read(0));
      weigh(0);
      pack_weights(scores, weights);
      if (range.n_tiles > 1) wait_for(barriers.keys_came(1 % kStages), 1);

      WINNOW_NO_UNROLL
      for (std::int32_t tile = 1; tile < range.n_tiles; ++tile) {
        const int stage = tile % kStages, before = (tile - 1) % kStages;
        if (kTurns) warpgroup::sync_threads(turn(group), 2 * kGroupThreads);
        warpgroup::fence_registers();
        begin_scores(queries, keys_of(tile), scores);
        wait_for(barriers.values_came(before), tile - 1);
        warpgroup::fence_registers();
        begin_outputs(weights, values_of(tile - 1), outputs);
        if (kTurns && !(is_last_group && tile + 1 == range.n_tiles)) {
          warpgroup::arrive_of_threads(turn(is_last_group ? 0 : group + 1), 2 * kGroupThreads);
        }
        warpgroup::wait_for_products<1>();
        warpgroup::see_sums(scores);
        release(barriers.keys_read(stage));
        weigh(tile);
        // This wait comes earlier than necessary, but keeps the compiler from moving the softmax after the next one.
        if (tile + 1 < range.n_tiles) wait_for(barriers.keys_came((tile + 1) % kStages), tile + 1);
        warpgroup::wait_for_products<0>();
        see_outputs(outputs);
        release(barriers.values_read(before));
        correct_outputs(corrections, outputs);
        pack_weights(scores, weights);
      }
      const std::int32_t last = range.n_tiles - 1;
      wait_for(barriers.values_came(last % kStages), last);
      warpgroup::fence_registers();
      begin_outputs(weights, values_of(last), outputs);
      warpgroup::wait_for_products<0>();
      see_outputs(outputs);
    }
    store_outputs(p, range.head, warp_row, greatest, sums, outputs);
  }

  // Assigns heads and rows to blocks as CausalBlocks does.
  WINNOW_DEVICE static void run(const CausalAttention& p, std::uint64_t (&barrier_memory)[kBarriers]) {
    // Blocks of matrices begin at addresses that are multiples of kBlockAlignment.
    const std::uint32_t given = warpgroup::shared_address(simt::shared());
    const std::uint32_t queries =
        (given + warpgroup::kBlockAlignment - 1) / warpgroup::kBlockAlignment * warpgroup::kBlockAlignment;
    const std::uint32_t keys = queries + kMatrixBlocks * kQueryBlockBytes;
    const std::uint32_t values = keys + kStages * kTileBytes;
    const Barriers barriers = {warpgroup::shared_address(barrier_memory)};
    if (simt::thread() == 0) {
      for (int stage = 0; stage < kStages; ++stage) {
        warpgroup::init_barrier(barriers.keys_came(stage), kGroupThreads);
        warpgroup::init_barrier(barriers.values_came(stage), kGroupThreads);
        warpgroup::init_barrier(barriers.keys_read(stage), kGroups * 4);  // warps
        warpgroup::init_barrier(barriers.values_read(stage), kGroups * 4);
      }
    }
    simt::barrier();
    const Range range = range_of_block(p);
    const int group = simt::shuffle(simt::warp() / 4, 0);  // uniform over the lanes, which the compiler can see
    if (group == 0) {
      warpgroup::give_registers<kCopyRegisters>();
      copy_tiles(p, range, keys, values, barriers);
    } else {
      warpgroup::take_registers<kComputeRegisters>();
      attend(p, range, group - 1, simt::shared() + (queries - given), queries, keys, values, barriers);
    }
  }
};

// Compiled for other architectures the kernel is empty, and has no barriers in static shared memory.
template <class Format, int kDim, int kGroups, int kEntries, bool kTurns>
WINNOW_KERNEL void WINNOW_THREADS((kGroups + 1) * 128, 1) causal_attention_sm90_kernel(CausalAttention plan) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using Blocks = Sm90CausalBlocks<Format, kDim, kGroups, kEntries, kTurns>;
  __shared__ std::uint64_t barriers[Blocks::kBarriers];
  Blocks::run(plan, barriers);
#endif
}

template <class Format, int kDim, int kGroups, int kEntries, bool kTurns = true>
void queue_sm90_causal_blocks(simt::Queue& queue, const CausalAttention& plan) {
  using Blocks = Sm90CausalBlocks<Format, kDim, kGroups, kEntries, kTurns>;
  const LayerAttention& layer = plan.layer;
  const simt::Grid grid = {.x = static_cast<unsigned>(layer.n_head / layer.n_kv_head),
                           .y = static_cast<unsigned>((plan.n_rows + Blocks::kRows - 1) / Blocks::kRows),
                           .z = static_cast<unsigned>(layer.n_kv_head)};
  simt::launch(queue, grid, Blocks::kThreads, Blocks::kSharedBytes,
               causal_attention_sm90_kernel<Format, kDim, kGroups, kEntries, kTurns>, plan);
}

// Returns whether the calling thread's device can run these kernels and this program has code for it. Returns false if
// the environment variable WINNOW_CUDA_KERNELS is "mma", which selects the kernels for all devices.
inline bool has_sm90_causal_attention() {
  static const bool is_off = [] {
    const char* kernels = std::getenv("WINNOW_CUDA_KERNELS");
    return kernels != nullptr && std::strcmp(kernels, "mma") == 0;
  }();
  if (is_off) return false;
  int device = 0, major = 0, minor = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess ||
      cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) != cudaSuccess || major != 9 ||
      minor != 0) {
    return false;
  }
  static const bool has_code = [] {
    cudaFuncAttributes attributes;
    return cudaFuncGetAttributes(&attributes, causal_attention_sm90_kernel<F16Format, 128, 2, 128, true>) ==
               cudaSuccess &&
           attributes.sharedSizeBytes > 0;
  }();
  return has_code;
}

template <class Format>
bool queue_sm90_causal_of_type(simt::Queue& queue, const CausalAttention& plan) {
  const int dim = plan.layer.key_dim > plan.layer.value_dim ? plan.layer.key_dim : plan.layer.value_dim;
  if (dim <= 64) {
    queue_sm90_causal_blocks<Format, 64, 2, 128>(queue, plan);
  } else if (dim <= 96) {
    queue_sm90_causal_blocks<Format, 96, 2, 128>(queue, plan);
  } else if (dim <= 128) {
    queue_sm90_causal_blocks<Format, 128, 2, 128>(queue, plan);
  } else if (dim == 256) {
    queue_sm90_causal_blocks<Format, 256, 2, 64>(queue, plan);
  } else {
    return false;
  }
  return true;
}

// Queues causal attention like queue_causal_attention. Returns false, without queueing it, if the device cannot run
// these kernels, if none has the plan's dimensions, or if the rows see all entries.
inline bool queue_sm90_causal_attention(simt::Queue& queue, const CausalAttention& plan) {
  if (plan.sees_all) return false;
  if (queue.error != cudaSuccess || plan.n_rows <= 0 || !has_sm90_causal_attention()) return false;
  return plan.layer.key_type == EntryType::kBF16 ? queue_sm90_causal_of_type<BF16Format>(queue, plan)
                                                 : queue_sm90_causal_of_type<F16Format>(queue, plan);
}

}  // namespace winnow::device
#endif
