// Statistics of the attention of a few rows over all entries (kernels/statistics/window_statistics.h) in two passes
// over the keys: first the rows' sums over slices of a head's entries, then the columns, reduced over the rows on the
// fly. Scores have the precision of float32: a query is split into two or three 16-bit numbers, and keys are used as
// they are stored. Slices depend on the head's own length alone and are merged in order, so that results are the same
// at every call.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/kernel_plans.h"
#include "device/kernels/entry_tiles-inl.h"
#include "device/kernels/simt.h"

namespace winnow::device {

inline constexpr int kStatisticsThreads = 128;
inline constexpr int kWindowStrip = 32;  // rows whose queries are in shared memory at a time

// The tiles [first, last) of a slice; may be empty.
struct TileRange {
  int first;
  int last;
};

// Returns the number of tiles per slice: the slots [0, n_slots) are cut into at most kMaxStatisticsSlices slices of at
// least four tiles.
WINNOW_DEVICE int tiles_of_slice(std::int32_t n_slots) {
  const int n_tiles = (n_slots + kTileEntries - 1) / kTileEntries;
  return simt::max(4, (n_tiles + kMaxStatisticsSlices - 1) / kMaxStatisticsSlices);
}
WINNOW_DEVICE int count_slices(std::int32_t n_slots) {
  const int size = tiles_of_slice(n_slots) * kTileEntries;
  return (n_slots + size - 1) / size;
}
WINNOW_DEVICE TileRange tiles_in_slice(std::int32_t n_slots, int slice) {
  const int size = tiles_of_slice(n_slots);
  const int n_tiles = (n_slots + kTileEntries - 1) / kTileEntries;
  return {simt::min(slice * size, n_tiles), simt::min(slice * size + size, n_tiles)};
}

// A row's softmax over some columns: the largest exponent of 2, and the sum of the powers relative to it.
struct RowSum {
  float high;
  float weight;
};

WINNOW_DEVICE RowSum merged(RowSum a, RowSum b) {
  const float high = simt::max(a.high, b.high);
  const float base = high == kHiddenScore ? 0.0F : high;
  return {high, a.weight * simt::exp2(a.high - base) + b.weight * simt::exp2(b.high - base)};
}

// The mean and the sum of squared deviations of n numbers.
struct Spread {
  float n;
  float mean;
  float m2;
};

WINNOW_DEVICE Spread merged(Spread a, Spread b) {
  const float n = a.n + b.n;
  if (n == 0.0F) return a;
  const float delta = b.mean - a.mean;
  return {n, (a.n * a.mean + b.n * b.mean) / n, a.m2 + b.m2 + delta * delta * (a.n * b.n / n)};
}

// Merges what two lanes have.
struct Merge {
  template <class T>
  WINNOW_DEVICE T operator()(const T& a, const T& b) const {
    return merged(a, b);
  }
};

// The part that both passes share: a block has a tile of keys and the queries of a strip of kWindowStrip rows, and each
// of its four warps has the scores of the strip's rows and 16 of the tile's columns.
template <class Format, int kDim>
struct WindowScores {
  using Tile = RowTile<kDim>;
  static constexpr int kTermBytes = kWindowStrip * Tile::kPitch;
  static constexpr int kQueryBytes = Format::kTerms * kTermBytes;
  static constexpr int kSharedBytes = kQueryBytes + Tile::kBytes;
  static constexpr int kStrips = kWindowStrip / 16;

  // Scores of rows fragment_row(i) + strip * 16 and columns fragment_column(i) + column * 8.
  using Scores = float[kStrips][2][4];

  // Stores the terms of the queries of rows [first_row, first_row + kWindowStrip), zeros for missing rows.
  WINNOW_DEVICE static void store_queries(const WindowStatistics& p, int head, int first_row, std::byte* to) {
    for (int i = simt::thread(); i < kWindowStrip * Tile::kWords; i += kStatisticsThreads) {
      const int row = i / Tile::kWords, word = i % Tile::kWords;
      float rest[8] = {};
      if (first_row + row < p.n_rows && word * 8 < p.layer.key_dim) {
        const float* from =
            p.q + (static_cast<std::int64_t>(first_row + row) * p.layer.n_head + head) * p.layer.key_dim + word * 8;
        WINNOW_UNROLL
        for (int half = 0; half < 2; ++half) {
          const FourFloats four = *reinterpret_cast<const FourFloats*>(from + half * 4);
          WINNOW_UNROLL
          for (int j = 0; j < 4; ++j) rest[half * 4 + j] = clamped(four.x[j], Format::kLargest);
        }
      }
      WINNOW_UNROLL
      for (int term = 0; term < Format::kTerms; ++term) {
        FourWords words;
        WINNOW_UNROLL
        for (int pair = 0; pair < 4; ++pair) {
          words.x[pair] = Format::pack(rest[pair * 2], rest[pair * 2 + 1]);
          rest[pair * 2] -= Format::low(words.x[pair]);
          rest[pair * 2 + 1] -= Format::high(words.x[pair]);
        }
        *reinterpret_cast<FourWords*>(to + term * kTermBytes + row * Tile::kPitch + word * 16) = words;
      }
    }
  }

  // Starts the copy of a tile of keys.
  WINNOW_DEVICE static void copy_keys(const WindowStatistics& p, const HeadTable& table, int tile, std::byte* to) {
    const PageRows page = table.pages[page_in_tile<kStatisticsThreads>(table, tile)];
    copy_tile<kDim, kStatisticsThreads>(to, page.keys, p.layer.key_dim, table.first_slot - tile * kTileEntries,
                                        table.n_entries);
    simt::commit_copies();
  }

  // Computes a warp's scores as exponents of 2. Entries that a row does not see and rows beyond n_rows get
  // kHiddenScore.
  WINNOW_DEVICE static void score(const WindowStatistics& p, const HeadTable& table, const std::byte* queries,
                                  const std::byte* keys, int first_row, std::int32_t first_column,
                                  std::int32_t n_columns, Scores& scores) {
    WINNOW_UNROLL
    for (int strip = 0; strip < kStrips; ++strip) {
      WINNOW_UNROLL
      for (int i = 0; i < 4; ++i) scores[strip][0][i] = scores[strip][1][i] = 0.0F;
    }
    queries += left_lane_offset<kDim>();
    keys += simt::warp() * 16 * Tile::kPitch + key_lane_offset<kDim>();
    WINNOW_UNROLL
    for (int step = 0; step < kDim / 16; ++step) {
      std::uint32_t k[4];
      simt::load_matrix(k, keys + step * 32);
      const std::uint32_t first[2] = {k[0], k[1]}, second[2] = {k[2], k[3]};
      WINNOW_UNROLL
      for (int term = 0; term < Format::kTerms; ++term) {
        WINNOW_UNROLL
        for (int strip = 0; strip < kStrips; ++strip) {
          std::uint32_t q[4];
          simt::load_matrix(q, queries + term * kTermBytes + strip * 16 * Tile::kPitch + step * 32);
          Format::multiply(scores[strip][0], q, first);
          Format::multiply(scores[strip][1], q, second);
        }
      }
    }
    const float cap = p.layer.soft_cap;
    const float unit = p.layer.scale * kLog2E;
    const std::int32_t end_of_first = table.n_entries + 1 - (p.sees_all ? 0 : p.n_rows);
    WINNOW_UNROLL
    for (int strip = 0; strip < kStrips; ++strip) {
      WINNOW_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int row = first_row + strip * 16 + fragment_row(half * 2);
        // A row sees entries up to its own, which is beyond the last entry if all rows see all entries.
        const std::int32_t end = end_of_first + row;
        const std::int32_t last = row < p.n_rows ? simt::min(end, n_columns) : 0;
        const std::int32_t begin = p.layer.sliding_window > 0 ? simt::max(end - p.layer.sliding_window, 0) : 0;
        WINNOW_UNROLL
        for (int column = 0; column < 2; ++column) {
          WINNOW_UNROLL
          for (int i = half * 2; i < half * 2 + 2; ++i) {
            float& x = scores[strip][column][i];
            if (cap != 0.0F) {
              x = (cap - 2.0F * cap * reciprocal(1.0F + simt::exp2(x * (2.0F * unit / cap)))) * kLog2E;
            } else {
              x *= unit;
            }
            const std::int32_t entry = first_column + column * 8 + fragment_column(i);
            if (entry < begin || entry >= last) x = kHiddenScore;
          }
        }
      }
    }
  }
};

// The first pass. Block (x, y, z) takes slice x of query head y's entries and strip z of the rows.
template <class Format, int kDim>
WINNOW_KERNEL void WINNOW_THREADS(kStatisticsThreads, 4) window_row_sums_kernel(WindowStatistics p) {
  using Window = WindowScores<Format, kDim>;
  const int slice = simt::block_x(), head = simt::block_y(), first_row = simt::block_z() * kWindowStrip;
  const HeadTable table = p.heads[head / (p.layer.n_head / p.layer.n_kv_head)];
  const TileRange tiles = tiles_in_slice(table.first_slot + table.n_entries, slice);
  if (tiles.first >= tiles.last) return;

  std::byte* const queries = simt::shared();
  std::byte* const keys = queries + Window::kQueryBytes;
  Window::copy_keys(p, table, tiles.first, keys);
  Window::store_queries(p, head, first_row, queries);

  RowSum sums[Window::kStrips][2];
  WINNOW_UNROLL
  for (int strip = 0; strip < Window::kStrips; ++strip) {
    sums[strip][0] = sums[strip][1] = {kHiddenScore, 0.0F};
  }
  for (int tile = tiles.first; tile < tiles.last; ++tile) {
    simt::wait_copies<0>();
    simt::barrier();
    typename Window::Scores scores;
    Window::score(p, table, queries, keys, first_row, tile * kTileEntries + simt::warp() * 16 - table.first_slot,
                  table.n_entries, scores);
    simt::barrier();
    if (tile + 1 < tiles.last) Window::copy_keys(p, table, tile + 1, keys);
    WINNOW_UNROLL
    for (int strip = 0; strip < Window::kStrips; ++strip) {
      WINNOW_UNROLL
      for (int half = 0; half < 2; ++half) {
        const float(&left)[4] = scores[strip][0];
        const float(&right)[4] = scores[strip][1];
        const float x[4] = {left[half * 2], left[half * 2 + 1], right[half * 2], right[half * 2 + 1]};
        RowSum& sum = sums[strip][half];
        const float high = simt::max(sum.high, simt::max(simt::max(x[0], x[1]), simt::max(x[2], x[3])));
        const float base = high == kHiddenScore ? 0.0F : high;
        float weight = sum.weight * simt::exp2(sum.high - base);
        WINNOW_UNROLL
        for (int i = 0; i < 4; ++i) weight += simt::exp2(x[i] - base);
        sum = {high, weight};
      }
    }
  }

  // Merges the sums of the four lanes of a row, then those of the warps, in order.
  RowSum* const of_warps = reinterpret_cast<RowSum*>(queries);  // [4][kWindowStrip]
  WINNOW_UNROLL
  for (int strip = 0; strip < Window::kStrips; ++strip) {
    WINNOW_UNROLL
    for (int half = 0; half < 2; ++half) {
      const RowSum sum = simt::combine_lanes<1, 4>(sums[strip][half], Merge{});
      if ((simt::lane() & 3) == 0) of_warps[simt::warp() * kWindowStrip + strip * 16 + fragment_row(half * 2)] = sum;
    }
  }
  simt::barrier();
  const int row = simt::thread();
  if (row < kWindowStrip && first_row + row < p.n_rows) {
    RowSum sum = of_warps[row];
    for (int warp = 1; warp < kStatisticsThreads / 32; ++warp) sum = merged(sum, of_warps[warp * kWindowStrip + row]);
    const std::int64_t at =
        (static_cast<std::int64_t>(head) * kMaxStatisticsSlices + slice) * p.n_rows + first_row + row;
    p.row_max[at] = sum.high;
    p.row_sum[at] = sum.weight;
  }
}

// A row's sum as the second pass needs it.
struct RowNorm {
  float high;
  float inverse;     // 1 / weight; 0 if the row sees no entry
  float log_weight;  // natural
};

WINNOW_DEVICE RowNorm row_norm(const WindowStatistics& p, int head, int row, int n_slices) {
  const std::int64_t at = static_cast<std::int64_t>(head) * kMaxStatisticsSlices * p.n_rows + row;
  RowSum sum = {kHiddenScore, 0.0F};
  for (int slice = 0; slice < n_slices; ++slice) {
    sum = merged(sum, RowSum{p.row_max[at + slice * p.n_rows], p.row_sum[at + slice * p.n_rows]});
  }
  if (p.layer.sink_logits != nullptr) sum = merged(sum, RowSum{p.layer.sink_logits[head] * kLog2E, 1.0F});
  if (sum.weight == 0.0F) return {0.0F, 0.0F, 0.0F};
  return {sum.high, 1.0F / sum.weight, simt::log2(sum.weight) * kLn2};
}

// The second pass. Block (x, y) takes slice x of query head y's columns. A lane reduces its rows of a column in order;
// then the eight lanes of a column are merged. Rows whose size is no multiple of 64 take more registers for addresses.
template <class Format, int kDim>
WINNOW_KERNEL void WINNOW_THREADS(kStatisticsThreads, kDim % 64 == 0 ? 4 : 2)
    window_columns_kernel(WindowStatistics p) {
  using Window = WindowScores<Format, kDim>;
  const int slice = simt::block_x(), head = simt::block_y();
  const int kv_head = head / (p.layer.n_head / p.layer.n_kv_head);
  const HeadTable table = p.heads[kv_head];
  const std::int32_t n_columns = simt::min(p.n_columns[kv_head], table.n_entries);
  const TileRange tiles = tiles_in_slice(table.first_slot + n_columns, slice);
  const bool is_one_strip = p.n_rows <= kWindowStrip;

  std::byte* const queries = simt::shared();
  std::byte* const keys = queries + Window::kQueryBytes;
  RowNorm* const norms = reinterpret_cast<RowNorm*>(keys + Window::Tile::kBytes);  // [n_rows]
  for (int row = simt::thread(); row < p.n_rows; row += kStatisticsThreads) {
    norms[row] = row_norm(p, head, row, count_slices(table.first_slot + table.n_entries));
  }
  if (is_one_strip) Window::store_queries(p, head, 0, queries);

  if (tiles.first < tiles.last) Window::copy_keys(p, table, tiles.first, keys);
  double entropy = 0.0;
  for (int tile = tiles.first; tile < tiles.last; ++tile) {
    const std::int32_t first_column = tile * kTileEntries + simt::warp() * 16 - table.first_slot;
    Spread spread[2][2] = {};  // of the lane's columns
    float max[2][2] = {}, last[2][2] = {}, squares[2][2] = {}, surprise[2][2] = {};
    for (int first_row = 0; first_row < p.n_rows; first_row += kWindowStrip) {
      if (!is_one_strip) Window::store_queries(p, head, first_row, queries);
      simt::wait_copies<0>();
      simt::barrier();
      typename Window::Scores scores;
      Window::score(p, table, queries, keys, first_row, first_column, n_columns, scores);
      simt::barrier();  // after it, the queries and, after the last strip, the keys can be overwritten
      const bool is_last = first_row + kWindowStrip >= p.n_rows;
      if (is_last && tile + 1 < tiles.last) Window::copy_keys(p, table, tile + 1, keys);
      WINNOW_UNROLL
      for (int strip = 0; strip < Window::kStrips; ++strip) {
        WINNOW_UNROLL
        for (int half = 0; half < 2; ++half) {
          const int row = first_row + strip * 16 + fragment_row(half * 2);
          if (row >= p.n_rows) continue;
          const RowNorm norm = norms[row];
          const float n = static_cast<float>(row / 8 + 1);
          const float share = 1.0F / n;
          WINNOW_UNROLL
          for (int column = 0; column < 2; ++column) {
            WINNOW_UNROLL
            for (int i = 0; i < 2; ++i) {
              // The exponent is finite even if the weight is 0, so that 0 ln 0 is 0.
              const float x = simt::max(scores[strip][column][half * 2 + i] - norm.high, -1000.0F);
              const float a = simt::exp2(x) * norm.inverse;
              surprise[column][i] = simt::fma(a, simt::fma(x, -kLn2, norm.log_weight), surprise[column][i]);
              Spread& s = spread[column][i];
              const float delta = a - s.mean;
              s.n = n;
              s.mean = simt::fma(delta, share, s.mean);
              s.m2 = simt::fma(delta, a - s.mean, s.m2);
              max[column][i] = simt::max(max[column][i], a);
              squares[column][i] = simt::fma(a, a, squares[column][i]);
              if (row == p.n_rows - 1) last[column][i] = a;
            }
          }
        }
      }
    }
    WINNOW_UNROLL
    for (int column = 0; column < 2; ++column) {
      WINNOW_UNROLL
      for (int i = 0; i < 2; ++i) {
        entropy += static_cast<double>(surprise[column][i]);
        const Spread s = simt::combine_lanes<4, 32>(spread[column][i], Merge{});
        max[column][i] = simt::max_lanes<4, 32>(max[column][i]);
        last[column][i] = simt::max_lanes<4, 32>(last[column][i]);
        squares[column][i] = simt::sum_lanes<4, 32>(squares[column][i]);
        const std::int32_t entry = first_column + column * 8 + fragment_column(i);
        if (simt::lane() < 4 && entry >= 0 && entry < n_columns) {
          const std::int64_t at = static_cast<std::int64_t>(head) * p.stride + entry;
          if (p.mean != nullptr) p.mean[at] = s.mean;
          if (p.m2 != nullptr) p.m2[at] = s.m2;
          if (p.max != nullptr) p.max[at] = max[column][i];
          if (p.last != nullptr) p.last[at] = last[column][i];
          if (p.squares != nullptr) p.squares[at] = squares[column][i];
        }
      }
    }
  }
  if (p.entropy == nullptr) return;
  entropy = simt::sum_lanes<1, 32>(entropy);
  double* const of_warps = reinterpret_cast<double*>(queries);
  simt::barrier();
  if (simt::lane() == 0) of_warps[simt::warp()] = entropy;
  simt::barrier();
  if (simt::thread() == 0) {
    for (int warp = 1; warp < kStatisticsThreads / 32; ++warp) entropy += of_warps[warp];
    p.slice_entropy[head * kMaxStatisticsSlices + slice] = entropy;
  }
}

// Sums the slices' parts of a head's entropy, one head per thread. Plan is WindowStatistics.
template <class Plan>
WINNOW_KERNEL void window_entropy_kernel(Plan p) {
  const int head = simt::block_x() * simt::n_threads() + simt::thread();
  if (head >= p.layer.n_head) return;
  double entropy = 0.0;
  for (int slice = 0; slice < kMaxStatisticsSlices; ++slice) {
    entropy += p.slice_entropy[head * kMaxStatisticsSlices + slice];
  }
  p.entropy[head] = entropy;
}

template <class Format, int kDim>
void queue_window_scores(simt::Queue& queue, const WindowStatistics& plan) {
  using Window = WindowScores<Format, kDim>;
  const auto n_head = static_cast<unsigned>(plan.layer.n_head);
  const auto n_strips = static_cast<unsigned>((plan.n_rows + kWindowStrip - 1) / kWindowStrip);
  simt::launch(queue, {.x = kMaxStatisticsSlices, .y = n_head, .z = n_strips}, kStatisticsThreads, Window::kSharedBytes,
               window_row_sums_kernel<Format, kDim>, plan);
  simt::launch(queue, {.x = kMaxStatisticsSlices, .y = n_head}, kStatisticsThreads,
               Window::kSharedBytes + static_cast<std::size_t>(plan.n_rows) * sizeof(RowNorm),
               window_columns_kernel<Format, kDim>, plan);
  if (plan.entropy != nullptr) {
    simt::launch(queue, {.x = (n_head + 31) / 32}, 32, 0, window_entropy_kernel<WindowStatistics>, plan);
  }
}

template <class Format>
void queue_window_of_type(simt::Queue& queue, const WindowStatistics& plan) {
  const int dim = plan.layer.key_dim;
  if (dim <= 64) {
    queue_window_scores<Format, 64>(queue, plan);
  } else if (dim <= 96) {
    queue_window_scores<Format, 96>(queue, plan);
  } else if (dim <= 128) {
    queue_window_scores<Format, 128>(queue, plan);
  } else if (dim <= 192) {
    queue_window_scores<Format, 192>(queue, plan);
  } else {
    queue_window_scores<Format, 256>(queue, plan);
  }
}

// Queues the statistics whose pointers are not null. Keys are f16 or bf16, and q is 16-byte aligned.
inline void queue_window_statistics(simt::Queue& queue, const WindowStatistics& plan) {
  if (plan.n_rows <= 0) return;
  if (plan.layer.key_type == EntryType::kBF16) {
    queue_window_of_type<BF16Format>(queue, plan);
  } else {
    queue_window_of_type<F16Format>(queue, plan);
  }
}

}  // namespace winnow::device
