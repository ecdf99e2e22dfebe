// Statistics of attention columns in two passes over the keys: the rows' softmax denominators, then the weights,
// reduced over the rows block by block.
#include "kernels/simd/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/statistics/window_statistics.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cassert>
#include <cfloat>
#include <cmath>
#include <vector>

#include "kernels/attention/bf16_attention.h"
#include "kernels/entries/packing-inl.h"
#include "kernels/entries/run_cursor.h"
#include "kernels/simd/exp-inl.h"
#include "kernels/simd/tiling.h"
#include "kernels/statistics/bf16_split_scores.h"
#include "kernels/statistics/bf16_statistics.h"
#include "kernels/statistics/window_statistics.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Query row index = query head of the group * n_rows + row: a head's rows are neighbours.
struct WindowState {
  std::int32_t n_rows;
  std::int32_t n_queries;     // n_group * n_rows
  std::int32_t n_padded;      // n_queries, rounded up to whole tiles, or whole strips
  bool split;                 // queries and keys are packed for split_scores
  VisibleRange* ranges;       // [n_rows]
  float* queries;             // [n_padded][key_dim], times scale * log2(e): scores are exponents of 2
  float* keys;                // [panels of a block][key_dim][kPanel]
  float* scores;              // [n_padded][kKeyBlock]
  float* high;                // [n_queries] maximum of the row's scores
  double* weight;             // [n_queries] sum of 2^(score - high)
  float* inverse;             // [n_queries] 1 / weight
  float* log_weight;          // [n_queries] natural log of weight
  float* shares;              // [n_rows] 1 / (row + 1)
  std::byte* packed_queries;  // for split_scores, as packed_keys
  std::byte* packed_keys;
};

WindowState make_state(const AttentionShape& shape, const HeadEntries& entries, const QueryRows& rows,
                       std::span<std::byte> memory) {
  WindowState s{};
  s.n_rows = rows.n_rows;
  s.n_queries = rows.n_rows * shape.n_group;
  s.split = prefers_split_scores(shape);
  s.n_padded = round_up(s.n_queries, s.split ? kSplitStrip : kTileRows);
  const auto n = static_cast<std::size_t>(s.n_queries);
  const auto padded = static_cast<std::size_t>(s.n_padded);
  const auto d = static_cast<std::size_t>(shape.key_dim);
  Scratch scratch(memory);
  s.ranges = scratch.take<VisibleRange>(static_cast<std::size_t>(rows.n_rows));
  s.queries = scratch.take<float>(static_cast<std::size_t>(std::max(s.n_padded, round_up(s.n_queries, kTileRows))) * d);
  if (s.split) {
    s.packed_queries = scratch.take<std::byte>(split_rows_bytes(shape.key_dim, s.n_padded));
    s.packed_keys = scratch.take<std::byte>(split_rows_bytes(shape.key_dim, kKeyBlock));
  } else {
    s.keys = scratch.take<float>(kKeyBlock * d);
  }
  s.scores = scratch.take<float>(padded * kKeyBlock);
  s.high = scratch.take<float>(n);
  s.weight = scratch.take<double>(n);
  s.inverse = scratch.take<float>(n);
  s.log_weight = scratch.take<float>(n);
  s.shares = scratch.take<float>(static_cast<std::size_t>(rows.n_rows));
  for (std::int32_t r = 0; r < s.n_rows; ++r) s.shares[r] = 1.0F / static_cast<float>(r + 1);

  visible_ranges(shape, entries, rows, s.ranges);
  const auto query = [&](std::int32_t index) {
    return rows.q + index % s.n_rows * rows.row_stride + static_cast<std::int64_t>(index / s.n_rows) * shape.key_dim;
  };
  copy_rows(s.n_queries, shape.key_dim, shape.spec.scale * kLog2E, query, s.queries);
  if (s.split) {
    std::fill(s.queries + static_cast<std::int64_t>(s.n_queries) * shape.key_dim,
              s.queries + static_cast<std::int64_t>(s.n_padded) * shape.key_dim, 0.0F);
    pack_split_queries(s.queries, shape.key_dim, s.n_padded, s.packed_queries);
  }
  return s;
}

// Computes the scores of n_padded query rows, whole tiles, with the n columns of a packed block: scores
// [n_padded][kKeyBlock]. A panel stays in the first-level cache while the tiles pass.
HWY_INLINE void score_tiles(const float* queries, std::int32_t n_padded, int head_dim, const float* panels,
                            std::int32_t n, float* scores) {
  for (std::int32_t column = 0; column < n; column += kPanel) {
    const float* panel = panels + static_cast<std::int64_t>(column) * head_dim;
    for (std::int32_t row = 0; row < n_padded; row += kTileRows) {
      multiply_tile<kTileVecs>(queries + static_cast<std::int64_t>(row) * head_dim, panel, head_dim,
                               scores + static_cast<std::int64_t>(row) * kKeyBlock + column, kKeyBlock);
    }
  }
}

// Sets scores [kKeyBlock] of columns outside [first, last) to -inf, up to the end of the vectors that cover columns [0,
// end).
inline void hide_columns(std::int32_t first, std::int32_t last, std::int32_t end, float* scores) {
  constexpr float kHidden = -HUGE_VALF;
  end = round_up(end, kLanes);
  std::fill(scores, scores + std::clamp(first, 0, end), kHidden);
  std::fill(scores + std::clamp(last, 0, end), scores + end, kHidden);
}

// Returns the largest of scores [n], n a multiple of kLanes, at most FLT_MAX; -inf if all are hidden.
HWY_INLINE float greatest(const float* scores, std::int32_t n) {
  const F d;
  VF high = hn::Set(d, -HUGE_VALF);
  for (std::int32_t i = 0; i < n; i += kLanes) high = hn::Max(high, hn::Load(d, scores + i));
  return std::min(hn::GetLane(hn::MaxOfLanes(d, high)), FLT_MAX);
}

// Computes the scores of all query rows with entries [block, block + n), with -inf if a row does not see an entry or
// the entry is not below `limit`, up to the end of the vectors that hold the n columns.
HWY_INLINE void score_block(const AttentionShape& shape, const WindowState& s, RunCursor& cursor, std::int32_t block,
                            std::int32_t n, std::int32_t limit) {
  if (s.split) {
    split_scores(shape, cursor, block, n, s.packed_queries, s.n_padded, s.packed_keys, s.scores, kKeyBlock);
  } else {
    pack_keys(shape, cursor, block, n, s.keys);
    score_tiles(s.queries, s.n_padded, shape.key_dim, s.keys, n, s.scores);
  }
  const std::int32_t end = round_up(n, kLanes);
  if (shape.spec.soft_cap != 0) {
    for (std::int32_t index = 0; index < s.n_queries; ++index) {
      soft_cap_scores(F(), s.scores + static_cast<std::int64_t>(index) * kKeyBlock, end, shape.spec.soft_cap * kLog2E);
    }
  }
  for (std::int32_t index = 0; index < s.n_queries; ++index) {
    const VisibleRange& range = s.ranges[index % s.n_rows];
    const std::int32_t last = std::min(range.last, limit);
    if (range.first > block || last < block + end) {
      hide_columns(range.first - block, last - block, end, s.scores + static_cast<std::int64_t>(index) * kKeyBlock);
    }
  }
}

// Computes high and weight of every query row over entries [first, last).
void sum_rows(const AttentionShape& shape, const HeadEntries& entries, const WindowState& s, std::int32_t first,
              std::int32_t last) {
  const F d;
  std::fill_n(s.high, s.n_queries, -HUGE_VALF);
  std::fill_n(s.weight, s.n_queries, 0.0);
  RunCursor cursor(entries);
  first = std::max(first, s.ranges[0].first);
  last = std::min(last, s.ranges[s.n_rows - 1].last);
  for (std::int32_t block = first; block < last; block += kKeyBlock) {
    const std::int32_t n = std::min(kKeyBlock, last - block);
    score_block(shape, s, cursor, block, n, last);
    const std::int32_t end = round_up(n, kLanes);
    for (std::int32_t index = 0; index < s.n_queries; ++index) {
      const float* scores = s.scores + static_cast<std::int64_t>(index) * kKeyBlock;
      const float high = std::max(s.high[index], greatest(scores, end));
      if (high == -HUGE_VALF) continue;
      const VF base = hn::Set(d, high);
      VF total = hn::Zero(d);
      for (std::int32_t i = 0; i < end; i += kLanes) {
        total = hn::Add(total, exp2_of_negative(d, hn::Sub(hn::Load(d, scores + i), base)));
      }
      s.weight[index] = s.weight[index] * std::exp2(static_cast<double>(s.high[index]) - static_cast<double>(high)) +
                        static_cast<double>(hn::GetLane(hn::SumOfLanes(d, total)));
      s.high[index] = high;
    }
  }
}

// Adds a sink, which no column has, to each row's sums.
void add_sinks(const float* sinks, const WindowState& s) {
  for (std::int32_t index = 0; index < s.n_queries; ++index) {
    const float sink = sinks[index / s.n_rows] * kLog2E;
    const float high = std::max(s.high[index], sink);
    const auto share = [high](float of) { return std::exp2(static_cast<double>(of) - static_cast<double>(high)); };
    s.weight[index] = (s.weight[index] == 0.0 ? 0.0 : s.weight[index] * share(s.high[index])) + share(sink);
    s.high[index] = high;
  }
}

// Computes the numbers that the reduction of columns needs from the rows' sums.
void invert_sums(const AttentionSpec& spec, const WindowState& s) {
  if (spec.sink_logits != nullptr) add_sinks(spec.sink_logits, s);
  for (std::int32_t index = 0; index < s.n_queries; ++index) {
    const bool blind = s.weight[index] == 0.0;  // the row sees no entry
    if (blind) s.high[index] = 0.0F;
    s.inverse[index] = blind ? 0.0F : static_cast<float>(1.0 / s.weight[index]);
    s.log_weight[index] = blind ? 0.0F : static_cast<float>(std::log(s.weight[index]));
  }
}

// The reduced columns of a block, [kKeyBlock] each.
struct BlockColumns {
  alignas(64) float mean[kKeyBlock];
  alignas(64) float m2[kKeyBlock];
  alignas(64) float max[kKeyBlock];
  alignas(64) float last[kKeyBlock];
};

// Reduces one query head's rows to their mean alone.
HWY_INLINE void average_rows(const WindowState& s, std::int32_t first_query, std::int32_t n, BlockColumns& columns) {
  const F d;
  const VF share = hn::Set(d, 1.0F / static_cast<float>(s.n_rows));
  for (std::int32_t i = 0; i < n; i += kLanes) {
    VF sum = hn::Zero(d);
    for (std::int32_t index = first_query; index < first_query + s.n_rows; ++index) {
      const VF score = hn::Load(d, s.scores + static_cast<std::int64_t>(index) * kKeyBlock + i);
      const VF weight = exp2_of_negative(d, hn::Sub(score, hn::Set(d, s.high[index])));
      sum = hn::MulAdd(weight, hn::Set(d, s.inverse[index]), sum);
    }
    hn::Store(hn::Mul(sum, share), d, columns.mean + i);
  }
}

// Reduces one query head's rows; returns their entropy over these columns. Welford's update: no cancellation in m2.
HWY_INLINE double reduce_rows(const WindowState& s, std::int32_t first_query, std::int32_t n, BlockColumns& columns) {
  const F d;
  const VF minus_ln2 = hn::Set(d, static_cast<float>(-kLn2));
  double entropy = 0.0;
  for (std::int32_t i = 0; i < n; i += kLanes) {
    VF mean = hn::Zero(d);
    VF m2 = hn::Zero(d);
    VF max = hn::Zero(d);
    VF a = hn::Zero(d);
    VF surprise = hn::Zero(d);
    for (std::int32_t r = 0; r < s.n_rows; ++r) {
      const std::int32_t index = first_query + r;
      const VF score = hn::Load(d, s.scores + static_cast<std::int64_t>(index) * kKeyBlock + i);
      const VF x = clamp_exponent(d, hn::Sub(score, hn::Set(d, s.high[index])));
      a = hn::Mul(exp2_in_range(d, x), hn::Set(d, s.inverse[index]));
      // -ln A = ln(weight) - x ln 2; finite even if A is 0
      surprise = hn::MulAdd(a, hn::MulAdd(x, minus_ln2, hn::Set(d, s.log_weight[index])), surprise);
      const VF delta = hn::Sub(a, mean);
      mean = hn::MulAdd(delta, hn::Set(d, s.shares[r]), mean);
      m2 = hn::MulAdd(delta, hn::Sub(a, mean), m2);
      max = hn::Max(max, a);
    }
    entropy += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, surprise)));
    hn::Store(mean, d, columns.mean + i);
    hn::Store(m2, d, columns.m2 + i);
    hn::Store(max, d, columns.max + i);
    hn::Store(a, d, columns.last + i);
  }
  return entropy;
}

inline void copy_columns(const float* columns, std::int32_t n, float* out, std::int64_t at) {
  if (out) std::copy_n(columns, n, out + at);
}

void window_row_sums(const AttentionShape& shape, const HeadEntries& entries, const QueryRows& rows, EntryRange part,
                     std::span<RowSum> sums, std::span<std::byte> scratch) {
  const WindowState s = make_state(shape, entries, rows, scratch);
  sum_rows(shape, entries, s, part.first, part.last);
  for (std::int32_t index = 0; index < s.n_queries; ++index) {
    sums[static_cast<std::size_t>(index)] = {.high = s.high[index], .weight = s.weight[index]};
  }
}

void window_columns(const AttentionShape& shape, const HeadEntries& entries, const QueryRows& rows,
                    std::span<const RowSum> sums, EntryRange part, const ColumnStatistics& out,
                    std::span<std::byte> scratch) {
  for (float* statistic : {out.mean, out.m2, out.max, out.last}) {
    for (int g = 0; statistic && g < shape.n_group; ++g) {
      const std::int64_t at = static_cast<std::int64_t>(g) * out.n_columns;
      std::fill(statistic + at + part.first, statistic + at + std::max(part.first, part.last), 0.0F);
    }
  }
  if (out.entropy) std::fill_n(out.entropy, shape.n_group, 0.0);
  if (rows.n_rows == 0) return;

  const WindowState s = make_state(shape, entries, rows, scratch);
  for (std::int32_t index = 0; index < s.n_queries; ++index) {
    s.high[index] = sums[static_cast<std::size_t>(index)].high;
    s.weight[index] = sums[static_cast<std::size_t>(index)].weight;
  }
  invert_sums(shape.spec, s);
  RunCursor cursor(entries);
  BlockColumns columns;
  const bool mean_only = !out.m2 && !out.max && !out.last && !out.entropy;
  const std::int32_t first = std::max(part.first, s.ranges[0].first);
  const std::int32_t last = std::min(part.last, s.ranges[s.n_rows - 1].last);
  for (std::int32_t block = first; block < last; block += kKeyBlock) {
    const std::int32_t n = std::min(kKeyBlock, last - block);
    score_block(shape, s, cursor, block, n, last);
    for (int g = 0; g < shape.n_group; ++g) {
      if (mean_only) {
        average_rows(s, g * s.n_rows, n, columns);
      } else {
        const double entropy = reduce_rows(s, g * s.n_rows, n, columns);
        if (out.entropy) out.entropy[g] += entropy;
      }
      const std::int64_t at = static_cast<std::int64_t>(g) * out.n_columns + block;
      copy_columns(columns.mean, n, out.mean, at);
      copy_columns(columns.m2, n, out.m2, at);
      copy_columns(columns.max, n, out.max, at);
      copy_columns(columns.last, n, out.last, at);
    }
  }
}

// Folds one query head's rows of a block into columns [n].
template <ColumnFold kFold>
HWY_INLINE void fold_block(const WindowState& s, std::int32_t first_query, std::int32_t n, float* columns) {
  const F d;
  alignas(64) float block[kKeyBlock];
  for (std::int32_t i = 0; i < n; i += kLanes) {
    VF folded = hn::Set(d, kFold == ColumnFold::kMax ? -HUGE_VALF : 0.0F);
    for (std::int32_t index = first_query; index < first_query + s.n_rows; ++index) {
      const VF score = hn::Load(d, s.scores + static_cast<std::int64_t>(index) * kKeyBlock + i);
      const VF exponent = hn::Sub(score, hn::Set(d, s.high[index]));
      if constexpr (kFold == ColumnFold::kMax) {
        folded = hn::Max(folded, exponent);
      } else {
        const VF a = exp2_of_negative(d, exponent);
        folded = kFold == ColumnFold::kSum ? hn::Add(folded, a) : hn::MulAdd(a, a, folded);
      }
    }
    hn::Store(kFold == ColumnFold::kMax ? exp2_of_negative(d, folded) : folded, d, block + i);
  }
  for (std::int32_t i = 0; i < n; ++i) {
    columns[i] = kFold == ColumnFold::kMax ? std::max(columns[i], block[i]) : columns[i] + block[i];
  }
}

void fold_columns(ColumnFold fold, const AttentionShape& shape, const HeadEntries& entries, const QueryRows& rows,
                  const float* log_sum_exp, EntryRange part, float* columns, std::span<std::byte> scratch) {
  const WindowState s = make_state(shape, entries, rows, scratch);
  for (std::int32_t index = 0; index < s.n_queries; ++index) {
    const float lse = log_sum_exp[static_cast<std::int64_t>(index % s.n_rows) * shape.n_group + index / s.n_rows];
    s.high[index] = lse == -HUGE_VALF ? 0.0F : static_cast<float>(static_cast<double>(lse) / kLn2);
  }
  RunCursor cursor(entries);
  const std::int32_t last = std::min(part.last, s.ranges[s.n_rows - 1].last);
  for (std::int32_t block = std::max(part.first, s.ranges[0].first); block < last; block += kKeyBlock) {
    const std::int32_t n = std::min(kKeyBlock, last - block);
    score_block(shape, s, cursor, block, n, last);
    for (int g = 0; g < shape.n_group; ++g) {
      float* out = columns + static_cast<std::int64_t>(g) * part.size() + (block - part.first);
      switch (fold) {
        case ColumnFold::kSum:
          fold_block<ColumnFold::kSum>(s, g * s.n_rows, n, out);
          break;
        case ColumnFold::kSquares:
          fold_block<ColumnFold::kSquares>(s, g * s.n_rows, n, out);
          break;
        case ColumnFold::kMax:
          fold_block<ColumnFold::kMax>(s, g * s.n_rows, n, out);
          break;
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace winnow::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::kernels {

std::size_t window_statistics_scratch_bytes(const AttentionShape& shape, int n_rows) {
  const auto n = static_cast<std::size_t>(n_rows * shape.n_group);
  const auto d = static_cast<std::size_t>(shape.key_dim);
  const bool split = prefers_split_scores(shape);
  const std::int32_t n_padded = round_up(n_rows * shape.n_group, split ? kSplitStrip : kTileRows);
  const auto padded = static_cast<std::size_t>(n_padded);
  const auto rows = static_cast<std::size_t>(std::max(n_padded, round_up(n_rows * shape.n_group, kTileRows)));
  const std::size_t operands = split ? Scratch::bytes<std::byte>(split_rows_bytes(shape.key_dim, n_padded)) +
                                           Scratch::bytes<std::byte>(split_rows_bytes(shape.key_dim, kKeyBlock))
                                     : Scratch::bytes<float>(kKeyBlock * d);
  const std::size_t bytes = Scratch::bytes<VisibleRange>(static_cast<std::size_t>(n_rows)) +
                            Scratch::bytes<float>(rows * d) + operands + Scratch::bytes<float>(padded * kKeyBlock) +
                            3 * Scratch::bytes<float>(n) + Scratch::bytes<double>(n) +
                            Scratch::bytes<float>(static_cast<std::size_t>(n_rows));
  return std::max(bytes, bf16_columns_scratch_bytes(shape, n_rows));
}

HWY_EXPORT(window_row_sums);
HWY_EXPORT(window_columns);
HWY_EXPORT(fold_columns);

void window_row_sums(const AttentionShape& shape, const HeadEntries& entries, const QueryRows& rows, EntryRange part,
                     std::span<RowSum> sums, std::span<std::byte> scratch) {
  assert(shape.key_dim % 8 == 0 && shape.key_dim <= kMaxHeadDim);
  assert(scratch.size() >= window_statistics_scratch_bytes(shape, rows.n_rows));
  if (rows.n_rows > 0) HWY_DYNAMIC_DISPATCH(window_row_sums)(shape, entries, rows, part, sums, scratch);
}

void merge_row_sums(std::span<const RowSum> part, std::span<RowSum> sums) {
  for (std::size_t i = 0; i < sums.size(); ++i) {
    if (part[i].weight == 0.0) continue;
    const float high = std::max(sums[i].high, part[i].high);
    const auto weight_at = [high](const RowSum& sum) {
      return sum.weight * std::exp2(static_cast<double>(sum.high) - static_cast<double>(high));
    };
    sums[i] = {.high = high, .weight = weight_at(sums[i]) + weight_at(part[i])};
  }
}

void window_columns(const AttentionShape& shape, const HeadEntries& entries, const QueryRows& rows,
                    std::span<const RowSum> sums, EntryRange part, const ColumnStatistics& out,
                    std::span<std::byte> scratch) {
  assert(scratch.size() >= window_statistics_scratch_bytes(shape, rows.n_rows));
  HWY_DYNAMIC_DISPATCH(window_columns)(shape, entries, rows, sums, part, out, scratch);
}

void window_statistics(const AttentionShape& shape, const HeadEntries& entries, const QueryRows& rows,
                       const ColumnStatistics& out, std::span<std::byte> scratch) {
  std::vector<RowSum> sums(static_cast<std::size_t>(rows.n_rows * shape.n_group));
  window_row_sums(shape, entries, rows, {0, entries.n_entries}, sums, scratch);
  window_columns(shape, entries, rows, sums, {0, out.n_columns}, out, scratch);
}

void row_log_sum_exps(const AttentionShape& shape, const HeadEntries& entries, const QueryRows& rows, float* out,
                      std::span<std::byte> scratch) {
  if (rows.n_rows == 0) return;
  if (prefers_bf16_attention(shape)) {
    assert(shape.key_dim % 8 == 0 && shape.key_dim <= kMaxHeadDim);
    assert(scratch.size() >= window_statistics_scratch_bytes(shape, rows.n_rows));
    bf16_row_log_sum_exps(current_bf16_unit(), shape, entries, rows, out, scratch);
    return;
  }
  std::vector<RowSum> sums(static_cast<std::size_t>(rows.n_rows * shape.n_group));
  window_row_sums(shape, entries, rows, {0, entries.n_entries}, sums, scratch);
  const auto at = [](std::int32_t i) { return static_cast<std::size_t>(i); };
  for (std::int32_t r = 0; r < rows.n_rows; ++r) {
    for (std::int32_t g = 0; g < shape.n_group; ++g) {
      const RowSum& sum = sums[at(g * rows.n_rows + r)];
      out[r * shape.n_group + g] = static_cast<float>(static_cast<double>(sum.high) * kLn2 + std::log(sum.weight));
    }
  }
}

void fold_columns(ColumnFold fold, const AttentionShape& shape, const HeadEntries& entries, const QueryRows& rows,
                  const float* log_sum_exp, EntryRange part, float* columns, std::span<std::byte> scratch) {
  assert(shape.key_dim % 8 == 0 && shape.key_dim <= kMaxHeadDim);
  assert(scratch.size() >= window_statistics_scratch_bytes(shape, rows.n_rows));
  if (rows.n_rows == 0) return;
  if (prefers_bf16_attention(shape)) {
    bf16_fold_columns(current_bf16_unit(), fold, shape, entries, rows, log_sum_exp, part, columns, scratch);
    return;
  }
  HWY_DYNAMIC_DISPATCH(fold_columns)(fold, shape, entries, rows, log_sum_exp, part, columns, scratch);
}

}  // namespace winnow::kernels
#endif
