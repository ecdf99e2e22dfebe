// Exact causal attention of many rows over pages, after FlashAttention-2 (arXiv 2307.08691): a block of threads takes
// some rows of one query head and loops over the tiles of keys and values that any of them sees, with an online
// softmax. A row's result depends on the row, the head's entries and the slots in which they lie, but not on the rows
// that are computed with it: tiles that a row does not see leave its sums unchanged.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>

#include "device/kernel_plans.h"
#include "device/kernels/entry_tiles-inl.h"
#include "device/kernels/simt.h"

namespace winnow::device {

inline constexpr std::int32_t kFarSlots = 1 << 30;  // more slots than any head has

// Returns the slots that row `row` of a head sees, counted from slot 0 of its first page. A row that sees all entries
// is like the last one.
WINNOW_DEVICE SlotRange slots_of_row(const HeadTable& table, std::int32_t window, int n_rows, int row) {
  const std::int32_t end = table.first_slot + table.n_entries - n_rows + 1 + row;
  const std::int32_t first =
      window > 0 ? simt::max(table.first_slot, static_cast<std::int32_t>(end - window)) : table.first_slot;
  return {first, simt::min(end, static_cast<std::int32_t>(table.first_slot + table.n_entries))};
}

// Returns 8 numbers of a row of q from 8 * word on, converted; zeros beyond the rows and their numbers.
template <class Format>
WINNOW_DEVICE FourWords query_word(const CausalAttention& p, int head, int row, int word) {
  FourWords words = {};
  if (row >= p.n_rows || word * 8 >= p.layer.key_dim) return words;
  const float* from = p.q + (static_cast<std::int64_t>(row) * p.layer.n_head + head) * p.layer.key_dim + word * 8;
  WINNOW_UNROLL
  for (int half = 0; half < 2; ++half) {
    const FourFloats four = *reinterpret_cast<const FourFloats*>(from + half * 4);
    WINNOW_UNROLL
    for (int pair = 0; pair < 2; ++pair) {
      words.x[half * 2 + pair] =
          Format::pack(clamped(four.x[pair * 2], Format::kLargest), clamped(four.x[pair * 2 + 1], Format::kLargest));
    }
  }
  return words;
}

// Attention of blocks of kWarps * kStrips * 16 rows. A warp has kStrips strips of 16 rows, whose products share the
// loaded keys and values. With kSkips, outputs are rescaled only after tiles that raise a row's maximum score.
template <class Format, int kDim, int kWarps, int kStrips, bool kSkips = true>
struct CausalBlocks {
  using Tile = RowTile<kDim>;
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kWarpRows = kStrips * 16;
  static constexpr int kRows = kWarps * kWarpRows;
  static constexpr int kSharedBytes = kRows * Tile::kPitch + 2 * Tile::kBytes;  // rows of q, keys, values
  static constexpr int kColumns = kTileEntries / 8;                             // matrices of a tile's scores
  static constexpr int kOutputs = kDim / 8;                                     // matrices of a strip's output

  // Converts the block's rows of q and stores them, with zeros for missing rows.
  WINNOW_DEVICE static void store_queries(const CausalAttention& p, int head, int first_row, std::byte* to) {
    for (int i = simt::thread(); i < kRows * Tile::kWords; i += kThreads) {
      const int row = i / Tile::kWords, word = i % Tile::kWords;
      *reinterpret_cast<FourWords*>(to + row * Tile::kPitch + word * 16) =
          query_word<Format>(p, head, first_row + row, word);
    }
  }

  using Scores = float[kStrips][kColumns][4];
  using Weights = std::uint32_t[kStrips][kColumns][2];  // two 16-bit numbers each
  using Outputs = float[kStrips][kOutputs][4];
  using RowNumbers = float[kStrips][2];  // of rows fragment_row(0) and fragment_row(2) of a strip

  WINNOW_DEVICE static void multiply_keys(const std::byte* queries, const std::byte* keys, Scores& scores) {
    WINNOW_UNROLL
    for (int strip = 0; strip < kStrips; ++strip) {
      WINNOW_UNROLL
      for (int column = 0; column < kColumns; ++column) {
        WINNOW_UNROLL
        for (int i = 0; i < 4; ++i) scores[strip][column][i] = 0.0F;
      }
    }
    WINNOW_UNROLL
    for (int step = 0; step < kDim / 16; ++step) {
      std::uint32_t q[kStrips][4];
      WINNOW_UNROLL
      for (int strip = 0; strip < kStrips; ++strip) {
        simt::load_matrix(q[strip], queries + strip * 16 * Tile::kPitch + step * 32);
      }
      WINNOW_UNROLL
      for (int pair = 0; pair < kColumns / 2; ++pair) {
        std::uint32_t k[4];
        simt::load_matrix(k, keys + pair * 16 * Tile::kPitch + step * 32);
        const std::uint32_t first[2] = {k[0], k[1]}, second[2] = {k[2], k[3]};
        WINNOW_UNROLL
        for (int strip = 0; strip < kStrips; ++strip) {
          Format::multiply(scores[strip][pair * 2], q[strip], first);
          Format::multiply(scores[strip][pair * 2 + 1], q[strip], second);
        }
      }
    }
  }

  // Adds the tile's values, multiplied by their weights, to the outputs.
  WINNOW_DEVICE static void multiply_values(const Weights& weights, const std::byte* values, Outputs& outputs) {
    WINNOW_UNROLL
    for (int step = 0; step < kTileEntries / 16; ++step) {
      std::uint32_t a[kStrips][4];
      WINNOW_UNROLL
      for (int strip = 0; strip < kStrips; ++strip) {
        WINNOW_UNROLL
        for (int i = 0; i < 4; ++i) a[strip][i] = weights[strip][step * 2 + i / 2][i % 2];
      }
      WINNOW_UNROLL
      for (int pair = 0; pair < kOutputs / 2; ++pair) {
        std::uint32_t v[4];
        simt::load_matrix_transposed(v, values + step * 16 * Tile::kPitch + pair * 32);
        const std::uint32_t first[2] = {v[0], v[1]}, second[2] = {v[2], v[3]};
        WINNOW_UNROLL
        for (int strip = 0; strip < kStrips; ++strip) {
          Format::multiply(outputs[strip][pair * 2], a[strip], first);
          Format::multiply(outputs[strip][pair * 2 + 1], a[strip], second);
        }
      }
    }
  }

  // Turns scores into cap tanh(scale score / cap), by tanh(x) = 1 - 2 / (1 + e^2x).
  WINNOW_DEVICE static void cap_scores(float scale, float cap, Scores& scores) {
    const float unit = 2.0F * kLog2E * scale / cap;
    WINNOW_UNROLL
    for (int strip = 0; strip < kStrips; ++strip) {
      WINNOW_UNROLL
      for (int column = 0; column < kColumns; ++column) {
        WINNOW_UNROLL
        for (int i = 0; i < 4; ++i) {
          scores[strip][column][i] = cap - 2.0F * cap * reciprocal(1.0F + simt::exp2(scores[strip][column][i] * unit));
        }
      }
    }
  }

  // Masks the scores of slots that a row does not see. Slots count from the tile's first.
  //   row_end: the end of the slots that the warp's first row sees; each next row sees one slot more
  WINNOW_DEVICE static void hide_scores(std::int32_t first_slot, std::int32_t row_end, std::int32_t window,
                                        Scores& scores) {
    const std::int32_t first = first_slot - fragment_column(0);
    const std::int32_t end = row_end + fragment_row(0) - fragment_column(0);
    const std::int32_t begin = window > 0 ? end - window : end - kFarSlots;
    WINNOW_UNROLL
    for (int strip = 0; strip < kStrips; ++strip) {
      WINNOW_UNROLL
      for (int column = 0; column < kColumns; ++column) {
        WINNOW_UNROLL
        for (int i = 0; i < 4; ++i) {
          const int slot = column * 8 + i % 2;
          const int from_row = slot - strip * 16 - i / 2 * 8;
          if (from_row >= end || from_row < begin || slot < first) scores[strip][column][i] = kHiddenScore;
        }
      }
    }
  }

  // Masks the scores of slots from `end` on, where every row sees all slots before.
  WINNOW_DEVICE static void hide_from(std::int32_t end, Scores& scores) {
    WINNOW_UNROLL
    for (int strip = 0; strip < kStrips; ++strip) {
      WINNOW_UNROLL
      for (int column = 0; column < kColumns; ++column) {
        WINNOW_UNROLL
        for (int i = 0; i < 4; ++i) {
          if (column * 8 + i % 2 + fragment_column(0) >= end) scores[strip][column][i] = kHiddenScore;
        }
      }
    }
  }

  // Turns scores into weights relative to the rows' maximum scores so far (times `unit`), and rescales the sums and
  // outputs to these maxima.
  WINNOW_DEVICE static void weigh_scores(float unit, const Scores& scores, Weights& weights, RowNumbers& greatest,
                                         RowNumbers& sums, Outputs& outputs) {
    WINNOW_UNROLL
    for (int strip = 0; strip < kStrips; ++strip) {
      WINNOW_UNROLL
      for (int half = 0; half < 2; ++half) {
        float most = kHiddenScore;
        WINNOW_UNROLL
        for (int column = 0; column < kColumns; ++column) {
          most = simt::max(most, simt::max(scores[strip][column][half * 2], scores[strip][column][half * 2 + 1]));
        }
        most = simt::max_lanes<1, 4>(most);
        most = simt::max(greatest[strip][half], most * unit);
        const float base = most == kHiddenScore ? 0.0F : most;
        const float correction = simt::exp2(greatest[strip][half] - base);
        greatest[strip][half] = most;
        float sum = sums[strip][half] * correction;
        WINNOW_UNROLL
        for (int column = 0; column < kColumns; ++column) {
          const float low = simt::exp2(simt::fma(scores[strip][column][half * 2], unit, -base));
          const float high = simt::exp2(simt::fma(scores[strip][column][half * 2 + 1], unit, -base));
          sum += low;
          sum += high;
          weights[strip][column][half] = Format::pack(low, high);
        }
        sums[strip][half] = sum;
        // Most tiles do not raise the maximum score of any row.
        if (!kSkips || correction != 1.0F) {
          WINNOW_UNROLL
          for (int column = 0; column < kOutputs; ++column) {
            outputs[strip][column][half * 2] *= correction;
            outputs[strip][column][half * 2 + 1] *= correction;
          }
        }
      }
    }
  }

  // Writes a warp's rows, except missing ones.
  WINNOW_DEVICE static void store_outputs(const CausalAttention& p, int head, int row, const RowNumbers& greatest,
                                          const RowNumbers& sums, const Outputs& outputs) {
    const float sink = p.layer.sink_logits != nullptr ? p.layer.sink_logits[head] * kLog2E : kHiddenScore;
    WINNOW_UNROLL
    for (int strip = 0; strip < kStrips; ++strip) {
      WINNOW_UNROLL
      for (int half = 0; half < 2; ++half) {
        const float sum = simt::sum_lanes<1, 4>(sums[strip][half]);
        const float high = simt::max(greatest[strip][half], sink);
        const bool is_blind = high == kHiddenScore;
        const float share = is_blind ? 0.0F : simt::exp2(greatest[strip][half] - high);
        const float total = is_blind ? 0.0F : sum * share + simt::exp2(sink - high);
        const float factor = is_blind ? 0.0F : share / total;
        const int r = row + strip * 16 + fragment_row(half * 2);
        if (r >= p.n_rows) continue;
        const std::int64_t at = static_cast<std::int64_t>(r) * p.layer.n_head + head;
        float* to = p.out + at * p.layer.value_dim;
        WINNOW_UNROLL
        for (int column = 0; column < kOutputs; ++column) {
          if (column * 8 < p.layer.value_dim) {
            *reinterpret_cast<TwoFloats*>(to + column * 8 + fragment_column(0)) = {
                outputs[strip][column][half * 2] * factor, outputs[strip][column][half * 2 + 1] * factor};
          }
        }
        if (p.log_sum_exp != nullptr && (simt::lane() & 3) == 0) {
          p.log_sum_exp[at] = is_blind ? kHiddenScore : (high + simt::log2(total)) * kLn2;
        }
      }
    }
  }

  // Block (x, y, z) takes query head x of the group of KV head z. The blocks of a KV head are neighbours, so that its
  // entries stay in the second-level cache; blocks y take the rows from the last on, so that those with the most work
  // begin first.
  WINNOW_DEVICE static void run(const CausalAttention& p) {
    const int head = simt::block_z() * simt::grid_x() + simt::block_x();
    const int first_row = (simt::grid_y() - 1 - simt::block_y()) * kRows;
    const int last_row = simt::min(first_row + kRows, p.n_rows) - 1;
    const HeadTable table = p.heads[simt::block_z()];
    const std::int32_t window = p.layer.sliding_window;

    std::byte* const queries = simt::shared();
    std::byte* const keys = queries + kRows * Tile::kPitch;
    std::byte* const values = keys + Tile::kBytes;

    const SlotRange filled = slots_of(table);
    const int n_causal = p.sees_all ? 1 : p.n_rows;
    const std::int32_t last_slot = slots_of_row(table, window, n_causal, last_row).last;
    const std::int32_t first_tile = slots_of_row(table, window, n_causal, first_row).first / kTileEntries;
    const std::int32_t last_tile =
        last_slot <= table.first_slot ? first_tile : (last_slot + kTileEntries - 1) / kTileEntries;
    // The end of the slots that this warp's first row sees; lower than all slots if the warp has no row.
    const int warp_row = first_row + simt::warp() * kWarpRows;
    const std::int32_t own_end = p.sees_all ? filled.last : filled.last - p.n_rows + 1 + warp_row;
    const std::int32_t row_end = warp_row > last_row ? -kFarSlots : own_end;

    // Addresses are fetched long before they are used: those of the next tile's keys and of this tile's values.
    const auto page_in = [&](std::int32_t tile) {
      return p.heads[simt::block_z()].pages + page_in_tile<kThreads>(table, tile);
    };
    const std::byte* next_keys = nullptr;
    const std::byte* next_values = nullptr;
    if (first_tile < last_tile) {
      const PageRows page = *page_in(first_tile);
      next_values = page.values;
      copy_tile<kDim, kThreads>(keys, page.keys, p.layer.key_dim, table.first_slot - first_tile * kTileEntries,
                                table.n_entries);
      simt::commit_copies();
    }
    store_queries(p, head, first_row, queries);

    Outputs outputs;
    RowNumbers greatest, sums;
    WINNOW_UNROLL
    for (int strip = 0; strip < kStrips; ++strip) {
      WINNOW_UNROLL
      for (int half = 0; half < 2; ++half) {
        greatest[strip][half] = kHiddenScore;
        sums[strip][half] = 0.0F;
      }
      WINNOW_UNROLL
      for (int column = 0; column < kOutputs; ++column) {
        WINNOW_UNROLL
        for (int i = 0; i < 4; ++i) outputs[strip][column][i] = 0.0F;
      }
    }
    const float cap = p.layer.soft_cap;
    const float unit = cap != 0.0F ? kLog2E : p.layer.scale * kLog2E;
    const std::byte* const warp_queries = queries + simt::warp() * kWarpRows * Tile::kPitch + left_lane_offset<kDim>();
    const std::byte* const lane_keys = keys + key_lane_offset<kDim>();
    const std::byte* const lane_values = values + value_lane_offset<kDim>();

    for (std::int32_t tile = first_tile; tile < last_tile; ++tile) {
      const std::int32_t slot = tile * kTileEntries;
      // Tiles that none of the warp's rows sees are skipped; tiles that all of them see need no mask.
      const bool is_seen = slot < row_end + kWarpRows - 1 && (window == 0 || slot + kTileEntries > row_end - window);
      // The tile's keys have arrived, and every warp is done with the values of the tile before.
      simt::wait_copies<0>();
      simt::barrier();
      copy_tile<kDim, kThreads>(values, next_values, p.layer.value_dim, table.first_slot - slot, table.n_entries);
      simt::commit_copies();
      next_keys = page_in(tile + 1)->keys;

      Scores scores;
      if (is_seen) multiply_keys(warp_queries, lane_keys, scores);

      // The tile's values have arrived, and every warp is done with its keys.
      simt::wait_copies<0>();
      simt::barrier();
      if (tile + 1 < last_tile) {
        copy_tile<kDim, kThreads>(keys, next_keys, p.layer.key_dim, table.first_slot - slot - kTileEntries,
                                  table.n_entries);
        simt::commit_copies();
      }
      next_values = page_in(tile + 1)->values;
      if (is_seen) {
        if (cap != 0.0F) cap_scores(p.layer.scale, cap, scores);
        if (slot < table.first_slot || slot + kTileEntries > row_end ||
            (window != 0 && slot < row_end + kWarpRows - 1 - window)) {
          hide_scores(table.first_slot - slot, row_end - slot, window, scores);
          if (p.sees_all) hide_from(filled.last - slot, scores);
        }
        Weights weights;
        weigh_scores(unit, scores, weights, greatest, sums, outputs);
        multiply_values(weights, lane_values, outputs);
      }
    }
    store_outputs(p, head, warp_row, greatest, sums, outputs);
  }
};

template <class Format, int kDim, int kWarps, int kStrips, bool kSkips = true>
WINNOW_KERNEL void WINNOW_THREADS(kWarps * 32, kWarps > 4 ? 1 : 2) causal_attention_kernel(CausalAttention plan) {
  CausalBlocks<Format, kDim, kWarps, kStrips, kSkips>::run(plan);
}

template <class Format, int kDim, int kWarps, int kStrips, bool kSkips = true>
void queue_causal_blocks(simt::Queue& queue, const CausalAttention& plan) {
  using Blocks = CausalBlocks<Format, kDim, kWarps, kStrips, kSkips>;
  const LayerAttention& layer = plan.layer;
  const simt::Grid grid = {.x = static_cast<unsigned>(layer.n_head / layer.n_kv_head),
                           .y = static_cast<unsigned>((plan.n_rows + Blocks::kRows - 1) / Blocks::kRows),
                           .z = static_cast<unsigned>(layer.n_kv_head)};
  simt::launch(queue, grid, Blocks::kThreads, Blocks::kSharedBytes,
               causal_attention_kernel<Format, kDim, kWarps, kStrips, kSkips>, plan);
}

template <class Format>
void queue_causal_of_type(simt::Queue& queue, const CausalAttention& plan) {
  const int dim = plan.layer.key_dim > plan.layer.value_dim ? plan.layer.key_dim : plan.layer.value_dim;
  if (dim <= 64) {
    queue_causal_blocks<Format, 64, 4, 2>(queue, plan);
  } else if (dim <= 96) {
    queue_causal_blocks<Format, 96, 4, 2>(queue, plan);
  } else if (dim <= 128) {
    queue_causal_blocks<Format, 128, 4, 2>(queue, plan);
  } else if (dim <= 192) {
    queue_causal_blocks<Format, 192, 4, 1>(queue, plan);
  } else {
    queue_causal_blocks<Format, 256, 4, 1>(queue, plan);
  }
}

// Returns whether a layer's attention can be queued: keys and values have one type, f16 or bf16, and at most 256
// numbers.
inline bool has_causal_attention(const LayerAttention& layer) {
  const bool is_known = layer.key_type == EntryType::kF16 || layer.key_type == EntryType::kBF16;
  return is_known && layer.value_type == layer.key_type && layer.key_dim <= 256 && layer.value_dim <= 256;
}

// Queues causal attention of a layer for which has_causal_attention holds. q is 16-byte aligned.
inline void queue_causal_attention(simt::Queue& queue, const CausalAttention& plan) {
  assert(has_causal_attention(plan.layer));
  if (plan.n_rows <= 0) return;
  if (plan.layer.key_type == EntryType::kBF16) {
    queue_causal_of_type<BF16Format>(queue, plan);
  } else {
    queue_causal_of_type<F16Format>(queue, plan);
  }
}

}  // namespace winnow::device
