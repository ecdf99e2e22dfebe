// Blocked attention with an online softmax (FlashAttention, arXiv 2205.14135): for each block of keys and values,
// converted and packed once for all query rows, scores by register tiles, weights, weighted sums by register tiles.
#include "kernels/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/causal_attention.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>

#include "kernels/attention.h"
#include "kernels/exp-inl.h"
#include "kernels/packing-inl.h"
#include "kernels/run_cursor.h"
#include "kernels/tiling.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Query rows whose scores are worked on together: a few tiles, so that a panel of keys is read from the first-level
// cache.
inline constexpr std::int32_t kChunkRows = 4 * kTileRows;

// Everything that one call works on. Query row index = row * n_group + query head of the group.
struct CausalState {
  std::int32_t n_queries;  // n_rows * n_group
  float* queries;          // [n_tiles][head_dim][kTileRows], times scale * log2(e): scores are exponents of 2
  float* keys;             // [panels of a block][head_dim][kPanel]
  float* values;           // [kKeyBlock][head_dim]
  float* scores;           // [kChunkRows][kKeyBlock]
  float* sums;             // [n_tiles * kTileRows][head_dim], unnormalised outputs
  float* high;             // [n_tiles * kTileRows] running maximum of the row's scores
  double* weight;          // [n_tiles * kTileRows] running sum of 2^(score - high)
  float* rescale;          // [kChunkRows] what the block's new maximum does to sums
};

CausalState make_state(const AttentionShape& shape, std::int32_t n_rows, std::span<std::byte> memory) {
  const std::int32_t n_queries = n_rows * shape.n_group;
  const auto padded = static_cast<std::size_t>(round_up(n_queries, kTileRows));
  const auto d = static_cast<std::size_t>(shape.head_dim);
  Scratch scratch(memory);
  CausalState s{};
  s.n_queries = n_queries;
  s.queries = scratch.take<float>(padded * d);
  s.keys = scratch.take<float>(kKeyBlock * d);
  s.values = scratch.take<float>(kKeyBlock * d);
  s.scores = scratch.take<float>(kChunkRows * kKeyBlock);
  s.sums = scratch.take<float>(padded * d);
  s.high = scratch.take<float>(padded);
  s.weight = scratch.take<double>(padded);
  s.rescale = scratch.take<float>(kChunkRows);
  std::fill_n(s.sums, padded * d, 0.0F);
  std::fill_n(s.high, padded, -HUGE_VALF);
  std::fill_n(s.weight, padded, 0.0);
  return s;
}

// One row's scores [first, last), multiples of kLanes, become weights 2^(score - maximum); updates the row's state.
HWY_INLINE void soften_row(float* scores, std::int32_t first, std::int32_t last, float& high, double& weight,
                           float& rescale) {
  const F d;
  const float new_high = std::max(high, greatest(scores, first, last));
  const VF base = hn::Set(d, new_high == -HUGE_VALF ? 0.0F : new_high);
  VF total = hn::Zero(d);
  for (std::int32_t i = first; i < last; i += kLanes) {
    const VF w = exp2_of_negative(d, hn::Sub(hn::Load(d, scores + i), base));
    hn::Store(w, d, scores + i);
    total = hn::Add(total, w);
  }
  rescale = high == new_high ? 1.0F : std::exp2(high - new_high);
  weight = weight * static_cast<double>(rescale) + static_cast<double>(hn::GetLane(hn::SumOfLanes(d, total)));
  high = new_high;
}

// sums = sums * rescale + weights * values for a tile of rows and kVecs vectors of columns.
//   weights [kTileRows][kKeyBlock], values [n][head_dim], sums [kTileRows][head_dim]
template <int kVecs>
HWY_INLINE void add_values_tile(const float* HWY_RESTRICT weights, const float* HWY_RESTRICT values, std::int32_t n,
                                int head_dim, const float* HWY_RESTRICT rescale, float* HWY_RESTRICT sums) {
  const F d;
  VF acc[kTileRows][kVecs];
#pragma GCC unroll 8
  for (int r = 0; r < kTileRows; ++r) {
    const VF factor = hn::Set(d, rescale[r]);
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) acc[r][v] = hn::Mul(factor, hn::Load(d, sums + r * head_dim + v * kLanes));
  }
  for (std::int32_t i = 0; i < n; ++i, values += head_dim) {
    VF columns[kVecs];
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) columns[v] = hn::Load(d, values + v * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < kTileRows; ++r) {
      const VF w = hn::Set(d, weights[r * kKeyBlock + i]);
#pragma GCC unroll 8
      for (int v = 0; v < kVecs; ++v) acc[r][v] = hn::MulAdd(w, columns[v], acc[r][v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) hn::Store(acc[r][v], d, sums + r * head_dim + v * kLanes);
  }
}

// The same for all tiles of a chunk and all columns. A width that does not divide into full tiles is split evenly,
// since a tile of one vector alone cannot keep the multipliers busy.
HWY_INLINE void add_values(const float* weights, const float* values, std::int32_t n, std::int32_t n_tiles,
                           int head_dim, const float* rescale, float* sums) {
  const int n_vecs = head_dim / kLanes;
  const int n_parts = (n_vecs + kTileVecs - 1) / kTileVecs;
  int column = 0;
  for (int part = 0; part < n_parts; ++part) {
    const int width = (n_vecs - column / kLanes) / (n_parts - part);
    for (std::int32_t tile = 0; tile < n_tiles; ++tile) {
      const float* w = weights + tile * kTileRows * kKeyBlock;
      const float* factor = rescale + tile * kTileRows;
      float* out = sums + static_cast<std::int64_t>(tile) * kTileRows * head_dim + column;
      switch (width) {
        case 1:
          add_values_tile<1>(w, values + column, n, head_dim, factor, out);
          break;
        case 2:
          add_values_tile<2>(w, values + column, n, head_dim, factor, out);
          break;
        case 3:
          add_values_tile<3>(w, values + column, n, head_dim, factor, out);
          break;
        default:
          add_values_tile<4>(w, values + column, n, head_dim, factor, out);
      }
    }
    column += width * kLanes;
  }
}

// All query rows of a chunk against the packed block [block, block + n).
HWY_INLINE void attend_chunk(const AttentionShape& shape, const CausalState& s, const VisibleRange* ranges,
                             std::int32_t first_query, std::int32_t block, std::int32_t n) {
  const std::int32_t n_here = std::min(kChunkRows, s.n_queries - first_query);
  const VisibleRange& lowest = ranges[first_query / shape.n_group];
  const VisibleRange& highest = ranges[(first_query + n_here - 1) / shape.n_group];
  const std::int32_t first = std::max(lowest.first - block, 0) / kLanes * kLanes;
  const std::int32_t last = round_up(std::min(highest.last - block, n), kLanes);
  if (first >= last) return;
  const std::int32_t n_tiles = (n_here + kTileRows - 1) / kTileRows;
  score_tiles(s.queries + static_cast<std::int64_t>(first_query) * shape.head_dim, n_tiles, shape.head_dim, s.keys,
              first, last, s.scores);
  for (std::int32_t i = 0; i < n_here; ++i) {
    const VisibleRange& range = ranges[(first_query + i) / shape.n_group];
    float* scores = s.scores + i * kKeyBlock;
    if (range.first > block + first || range.last < block + last) {
      hide_columns(range.first - block, range.last - block, last, scores);
    }
    soften_row(scores, first, last, s.high[first_query + i], s.weight[first_query + i], s.rescale[i]);
  }
  for (std::int32_t i = n_here; i < n_tiles * kTileRows; ++i) {
    std::fill(s.scores + i * kKeyBlock + first, s.scores + i * kKeyBlock + last, 0.0F);
    s.rescale[i] = 0.0F;
  }
  add_values(s.scores + first, s.values + static_cast<std::int64_t>(first) * shape.head_dim, std::min(last, n) - first,
             n_tiles, shape.head_dim, s.rescale, s.sums + static_cast<std::int64_t>(first_query) * shape.head_dim);
}

void write_outputs(const AttentionShape& shape, const CausalState& s, const CausalOutput& output) {
  for (std::int32_t index = 0; index < s.n_queries; ++index) {
    const std::int32_t r = index / shape.n_group;
    const std::int32_t g = index % shape.n_group;
    const double weight = s.weight[index];
    const float factor = weight > 0.0 ? static_cast<float>(1.0 / weight) : 0.0F;  // a row that sees nothing gives 0
    const float* sums = s.sums + static_cast<std::int64_t>(index) * shape.head_dim;
    float* out = output.out + r * output.row_stride + static_cast<std::int64_t>(g) * shape.head_dim;
    for (int i = 0; i < shape.head_dim; ++i) out[i] = sums[i] * factor;
    if (output.log_sum_exp) {
      output.log_sum_exp[static_cast<std::int64_t>(r) * shape.n_group + g] =
          weight > 0.0 ? static_cast<float>(static_cast<double>(s.high[index]) * kLn2 + std::log(weight)) : -HUGE_VALF;
    }
  }
}

// At most kCausalBlockRows rows.
void attend_rows(const AttentionShape& shape, const HeadEntries& entries, const QueryRows& rows,
                 const CausalOutput& output, std::span<std::byte> scratch) {
  std::array<VisibleRange, kCausalBlockRows> ranges;
  visible_ranges(shape, entries, rows, ranges.data());
  const CausalState s = make_state(shape, rows.n_rows, scratch);
  for (std::int32_t index = 0; index < s.n_queries; ++index) {
    const float* q = rows.q + index / shape.n_group * rows.row_stride +
                     static_cast<std::int64_t>(index % shape.n_group) * shape.head_dim;
    pack_query(q, shape.scale * kLog2E, shape.head_dim, index, s.queries);
  }
  pack_padding(s.n_queries, shape.head_dim, s.queries);

  const std::int32_t first = ranges[0].first;
  const std::int32_t last = ranges[static_cast<std::size_t>(rows.n_rows - 1)].last;
  RunCursor key_cursor(entries);
  RunCursor value_cursor(entries);
  for (std::int32_t block = first; block < last; block += kKeyBlock) {
    const std::int32_t n = std::min(kKeyBlock, last - block);
    pack_keys(shape, key_cursor, block, n, s.keys);
    unpack_values(shape, value_cursor, block, n, s.values);
    for (std::int32_t query = 0; query < s.n_queries; query += kChunkRows) {
      attend_chunk(shape, s, ranges.data(), query, block, n);
    }
  }
  write_outputs(shape, s, output);
}

void causal_attention(const AttentionShape& shape, const HeadEntries& entries, const QueryRows& rows,
                      const CausalOutput& output, std::span<std::byte> scratch) {
  for (std::int32_t first = 0; first < rows.n_rows; first += kCausalBlockRows) {
    QueryRows some = rows;
    some.q += first * rows.row_stride;
    some.n_rows = std::min(kCausalBlockRows, rows.n_rows - first);
    some.n_visible += first;
    some.first_position += first;
    CausalOutput out = output;
    out.out += first * output.row_stride;
    if (out.log_sum_exp) out.log_sum_exp += static_cast<std::int64_t>(first) * shape.n_group;
    attend_rows(shape, entries, some, out, scratch);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace winnow::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::kernels {

std::size_t causal_attention_scratch_bytes(const AttentionShape& shape) {
  const auto padded = static_cast<std::size_t>(round_up(kCausalBlockRows * shape.n_group, kTileRows));
  const auto d = static_cast<std::size_t>(shape.head_dim);
  constexpr std::size_t kChunkRows = 4 * kTileRows;
  return 2 * Scratch::bytes<float>(padded * d) + 2 * Scratch::bytes<float>(kKeyBlock * d) +
         Scratch::bytes<float>(kChunkRows * kKeyBlock) + Scratch::bytes<float>(padded) +
         Scratch::bytes<double>(padded) + Scratch::bytes<float>(kChunkRows);
}

HWY_EXPORT(causal_attention);

void causal_attention(const AttentionShape& shape, const HeadEntries& entries, const QueryRows& rows,
                      const CausalOutput& output, std::span<std::byte> scratch) {
  assert(shape.head_dim % 16 == 0 && shape.head_dim <= kMaxHeadDim);
  assert(scratch.size() >= causal_attention_scratch_bytes(shape));
  HWY_DYNAMIC_DISPATCH(causal_attention)(shape, entries, rows, output, scratch);
}

}  // namespace winnow::kernels
#endif
