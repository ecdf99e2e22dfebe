// Folds the attention weights of many rows, whose log-sum-exps are known, into columns (kernels/statistics'
// fold_columns): their sums or their maxima. A warp keeps 32 keys in registers, and the rows' queries pass through
// shared memory, in 16-bit terms that a preceding kernel has made of them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/kernel_plans.h"
#include "device/kernels/entry_tiles-inl.h"
#include "device/kernels/simt.h"

namespace winnow::device {

inline constexpr int kFoldThreads = 128;
inline constexpr int kFoldTiles = 2;  // tiles of keys in a block

// The number of 16-bit terms for each number of a query: one float16 is as exact as attention is, one bfloat16 is not.
template <class Format>
inline constexpr int kFoldTerms = 1;
template <>
inline constexpr int kFoldTerms<BF16Format> = 2;

WINNOW_DEVICE std::int64_t padded_rows(int n_rows) {
  return static_cast<std::int64_t>(n_rows + kFoldStrip - 1) / kFoldStrip * kFoldStrip;
}

// The places in the workspace of the terms of a head's queries [kFoldTerms][n_padded][kDim] and of its rows'
// log-sum-exps [n_padded].
struct FoldRows {
  std::byte* terms;
  float* sums;
};
template <class Format, int kDim>
WINNOW_DEVICE FoldRows fold_rows(const ColumnFolds& p, int head) {
  const std::int64_t n_padded = padded_rows(p.n_rows);
  const std::int64_t bytes = kFoldTerms<Format> * n_padded * kDim * 2;
  float* const sums = reinterpret_cast<float*>(p.workspace + p.layer.n_head * bytes);
  return {p.workspace + head * bytes, sums + head * n_padded};
}

// Block (x, y) makes the terms of the queries of kFoldStrip rows of head y. Missing rows become zeros with infinite
// sums, so that their weights are 0.
template <class Format, int kDim>
WINNOW_KERNEL void WINNOW_THREADS(kFoldThreads, 4) fold_rows_kernel(ColumnFolds p) {
  constexpr int kWords = kDim / 8;
  const int first_row = simt::block_x() * kFoldStrip, head = simt::block_y();
  const FoldRows rows = fold_rows<Format, kDim>(p, head);
  const std::int64_t n_padded = padded_rows(p.n_rows);
  for (int i = simt::thread(); i < kFoldStrip * kWords; i += kFoldThreads) {
    const int row = first_row + i / kWords, word = i % kWords;
    float rest[8] = {};
    if (row < p.n_rows && word * 8 < p.layer.key_dim) {
      const float* const from =
          p.q + (static_cast<std::int64_t>(row) * p.layer.n_head + head) * p.layer.key_dim + word * 8;
      WINNOW_UNROLL
      for (int half = 0; half < 2; ++half) {
        const FourFloats four = *reinterpret_cast<const FourFloats*>(from + half * 4);
        WINNOW_UNROLL
        for (int j = 0; j < 4; ++j) rest[half * 4 + j] = clamped(four.x[j], Format::kLargest);
      }
    }
    WINNOW_UNROLL
    for (int term = 0; term < kFoldTerms<Format>; ++term) {
      simt::Words4 words;
      WINNOW_UNROLL
      for (int pair = 0; pair < 4; ++pair) {
        words.x[pair] = Format::pack(rest[pair * 2], rest[pair * 2 + 1]);
        rest[pair * 2] -= Format::low(words.x[pair]);
        rest[pair * 2 + 1] -= Format::high(words.x[pair]);
      }
      simt::store_16(rows.terms + ((term * n_padded + row) * kDim + word * 8) * 2, words);
    }
  }
  const int row = first_row + simt::thread();
  if (simt::thread() < kFoldStrip) {
    const float sum =
        row < p.n_rows ? p.log_sum_exp[static_cast<std::int64_t>(row) * p.layer.n_head + head] * kLog2E : -kHiddenScore;
    rows.sums[row] = sum == kHiddenScore ? 0.0F : sum;
  }
}

// Starts the copy of the terms of a strip of rows.
template <class Format, int kDim>
WINNOW_DEVICE void copy_fold_strip(const std::byte* terms, std::int64_t n_padded, int first_row, std::byte* to) {
  using Tile = RowTile<kDim>;
  for (int i = simt::thread(); i < kFoldTerms<Format> * kFoldStrip * Tile::kWords; i += kFoldThreads) {
    const int word = i % Tile::kWords, row = i / Tile::kWords % kFoldStrip, term = i / Tile::kWords / kFoldStrip;
    simt::copy_async_16(to + (term * kFoldStrip + row) * Tile::kPitch + word * 16,
                        terms + ((term * n_padded + first_row + row) * kDim + word * 8) * 2);
  }
  simt::commit_copies();
}

// Block (x, y) takes kFoldTiles tiles of the keys of query head y's range.
template <class Format, int kDim, bool kIsMax>
WINNOW_KERNEL void WINNOW_THREADS(kFoldThreads, kDim == 64    ? 4
                                                : kDim == 128 ? 3
                                                              : 2) column_folds_kernel(ColumnFolds p) {
  using Tile = RowTile<kDim>;
  constexpr int kSteps = kDim / 16, kTerms = kFoldTerms<Format>;
  constexpr int kStripBytes = kTerms * kFoldStrip * Tile::kPitch;
  const int head = simt::block_y(), kv_head = head / (p.layer.n_head / p.layer.n_kv_head);
  const HeadTable table = p.heads[kv_head];
  const std::int32_t first_of_range = p.first_columns[kv_head];
  const std::int32_t end_of_range = simt::min(first_of_range + p.n_columns[kv_head], table.n_entries);
  const int first_tile = (table.first_slot + first_of_range) / kTileEntries + simt::block_x() * kFoldTiles;
  if (first_of_range >= end_of_range || first_tile * kTileEntries >= table.first_slot + end_of_range) return;

  std::byte* const shared = simt::shared();  // tiles of keys, then two strips of rows
  WINNOW_UNROLL
  for (int t = 0; t < kFoldTiles; ++t) {
    const PageRows page = table.pages[page_in_tile<kFoldThreads>(table, first_tile + t)];
    copy_tile<kDim, kFoldThreads>(shared + t * Tile::kBytes, page.keys, p.layer.key_dim,
                                  table.first_slot - (first_tile + t) * kTileEntries, table.n_entries);
  }
  simt::commit_copies();
  simt::wait_copies<0>();
  simt::barrier();
  std::uint32_t keys[2][kSteps][4];  // of 32 slots
  const std::byte* const own = shared + simt::warp() / 2 * Tile::kBytes + simt::warp() % 2 * 32 * Tile::kPitch;
  WINNOW_UNROLL
  for (int half = 0; half < 2; ++half) {
    WINNOW_UNROLL
    for (int step = 0; step < kSteps; ++step) {
      simt::load_matrix(keys[half][step], own + half * 16 * Tile::kPitch + key_lane_offset<kDim>() + step * 32);
    }
  }
  simt::barrier();

  const std::int32_t first_column = first_tile * kTileEntries - table.first_slot;  // the block's first column; may be
                                                                                   // negative
  const std::int32_t own_column = first_column + simt::warp() * 32;
  // Row r sees the entries before end_of_first + r.
  const std::int32_t end_of_first = p.sees_all ? table.n_entries : table.n_entries - p.n_later - p.n_rows + 1;
  int strip = 0;
  if (!p.sees_all) strip = simt::max(first_column + 1 - end_of_first, 0) / kFoldStrip;
  const FoldRows rows = fold_rows<Format, kDim>(p, head);
  const std::int64_t n_padded = padded_rows(p.n_rows);
  const int n_strips = static_cast<int>(n_padded) / kFoldStrip;
  const float cap = p.layer.soft_cap, unit = p.layer.scale * kLog2E;

  float folded[4][2];
  WINNOW_UNROLL
  for (int block = 0; block < 4; ++block) folded[block][0] = folded[block][1] = kIsMax ? kHiddenScore : 0.0F;
  if (strip < n_strips) copy_fold_strip<Format, kDim>(rows.terms, n_padded, strip * kFoldStrip, shared);
  for (int buffer = 0; strip < n_strips; ++strip, buffer = 1 - buffer) {
    simt::wait_copies<0>();
    simt::barrier();  // after it, the other strip can be overwritten, too
    if (strip + 1 < n_strips) {
      copy_fold_strip<Format, kDim>(rows.terms, n_padded, (strip + 1) * kFoldStrip,
                                    shared + (1 - buffer) * kStripBytes);
    }
    float scores[2][4][4] = {};
    const std::byte* const queries = shared + buffer * kStripBytes + left_lane_offset<kDim>();
    WINNOW_UNROLL
    for (int step = 0; step < kSteps; ++step) {
      WINNOW_UNROLL
      for (int term = 0; term < kTerms; ++term) {
        WINNOW_UNROLL
        for (int half = 0; half < 2; ++half) {
          std::uint32_t q[4];
          simt::load_matrix(q, queries + (term * kFoldStrip + half * 16) * Tile::kPitch + step * 32);
          WINNOW_UNROLL
          for (int block = 0; block < 4; ++block) {
            const std::uint32_t k[2] = {keys[block / 2][step][block % 2 * 2], keys[block / 2][step][block % 2 * 2 + 1]};
            Format::multiply(scores[half][block], q, k);
          }
        }
      }
    }
    const int first_row = strip * kFoldStrip;
    const bool hides = !p.sees_all && end_of_first + first_row < own_column + 32;
    WINNOW_UNROLL
    for (int half = 0; half < 2; ++half) {
      WINNOW_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int row = first_row + half * 16 + fragment_row(i);
        const float sum = rows.sums[row];
        WINNOW_UNROLL
        for (int block = 0; block < 4; ++block) {
          float x = scores[half][block][i];
          if (cap != 0.0F) {
            x = (cap - 2.0F * cap * reciprocal(1.0F + simt::exp2(x * (2.0F * unit / cap)))) * kLog2E - sum;
          } else {
            x = simt::fma(x, unit, -sum);
          }
          if (hides && own_column + block * 8 + fragment_column(i) >= end_of_first + row) x = kHiddenScore;
          float& to = folded[block][i % 2];
          to = kIsMax ? simt::max(to, x) : to + simt::exp2(x);
        }
      }
    }
  }
  WINNOW_UNROLL
  for (int block = 0; block < 4; ++block) {
    WINNOW_UNROLL
    for (int i = 0; i < 2; ++i) {
      const float x =
          kIsMax ? simt::max_lanes<4, 32>(simt::exp2(folded[block][i])) : simt::sum_lanes<4, 32>(folded[block][i]);
      const std::int32_t entry = own_column + block * 8 + fragment_column(i);
      if (simt::lane() < 4 && entry >= first_of_range && entry < end_of_range) {
        float& to = p.columns[static_cast<std::int64_t>(head) * p.stride + entry - first_of_range];
        if (!p.adds) {
          to = x;
        } else {
          to = kIsMax ? simt::max(to, x) : to + x;
        }
      }
    }
  }
}

template <class Format, int kDim, bool kIsMax>
void queue_column_folds_of_dim(simt::Queue& queue, const ColumnFolds& plan) {
  constexpr int kSlots = kFoldTiles * kTileEntries;
  const auto n_head = static_cast<unsigned>(plan.layer.n_head);
  simt::launch(queue, {.x = static_cast<unsigned>(fold_padded_rows(plan.n_rows) / kFoldStrip), .y = n_head},
               kFoldThreads, 0, fold_rows_kernel<Format, kDim>, plan);
  // The first column may lie in any slot of a tile.
  constexpr int kKeyBytes = kFoldTiles * RowTile<kDim>::kBytes;
  constexpr int kStripBytes = 2 * kFoldTerms<Format> * kFoldStrip * RowTile<kDim>::kPitch;
  const auto n_blocks = static_cast<unsigned>((plan.stride + kTileEntries - 1 + kSlots - 1) / kSlots);
  simt::launch(queue, {.x = n_blocks, .y = n_head}, kFoldThreads, kKeyBytes > kStripBytes ? kKeyBytes : kStripBytes,
               column_folds_kernel<Format, kDim, kIsMax>, plan);
}

template <class Format, bool kIsMax>
void queue_column_folds_of_type(simt::Queue& queue, const ColumnFolds& plan) {
  const int dim = plan.layer.key_dim;
  if (dim <= 64) {
    queue_column_folds_of_dim<Format, 64, kIsMax>(queue, plan);
  } else if (dim <= 128) {
    queue_column_folds_of_dim<Format, 128, kIsMax>(queue, plan);
  } else {
    queue_column_folds_of_dim<Format, 256, kIsMax>(queue, plan);
  }
}

// Queues the folds. Keys are f16 or bf16, and q is 16-byte aligned.
inline void queue_column_folds(simt::Queue& queue, const ColumnFolds& plan) {
  if (plan.stride <= 0 || plan.n_rows <= 0) return;
  const bool is_bf16 = plan.layer.key_type == EntryType::kBF16;
  if (plan.is_max) {
    is_bf16 ? queue_column_folds_of_type<BF16Format, true>(queue, plan)
            : queue_column_folds_of_type<F16Format, true>(queue, plan);
  } else {
    is_bf16 ? queue_column_folds_of_type<BF16Format, false>(queue, plan)
            : queue_column_folds_of_type<F16Format, false>(queue, plan);
  }
}

}  // namespace winnow::device
