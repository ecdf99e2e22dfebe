// fold_columns and row_log_sum_exps by products of bfloat16. Scores are the same as in bf16_attention, whose
// log-sum-exps fold_columns reads.
#include <hwy/base.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/entries/rows.h"
#include "kernels/entries/run_cursor.h"
#include "kernels/simd/tiling.h"
#include "kernels/statistics/bf16_statistics.h"

#if HWY_ARCH_X86_64

#include "kernels/simd/bf16_begin-inl.h"
#include "kernels/simd/bf16_products-inl.h"

namespace winnow::kernels {
namespace {

// Query row index = query head of the group * n_padded + row: a strip has rows of one head.
struct State {
  int width;
  std::int32_t n_padded;  // n_rows, rounded up to whole strips
  Pair* queries;          // [n_group * n_padded][width / 2]
  float* high;            // [n_group * n_padded] log-sum-exp of the row, base 2; inf after the last row. While rows are
                          // summed: the largest score so far
  float* weight;          // [n_group * n_padded] sum of 2^(score - high) so far, if rows are summed
  VisibleRange* ranges;   // [n_padded]
  Pair* keys;             // [kBlockKeys / 16][width / 2][16]
  float* scores;          // [kMaxStripRows][kScoreStride]
};

const float* row_of(const AttentionShape& shape, const QueryRows& rows, std::int32_t r, int g) {
  return rows.q + r * rows.row_stride + std::int64_t{g} * shape.key_dim;
}

// Packs the rows; padding after the last row sees the same entries as the last.
State make_state(const AttentionShape& shape, const HeadEntries& entries, const QueryRows& rows, std::int32_t strip,
                 std::span<std::byte> memory) {
  State s{};
  s.width = round_up(shape.key_dim, kTerms);
  s.n_padded = round_up(rows.n_rows, strip);
  const auto padded = static_cast<std::size_t>(s.n_padded);
  const std::size_t queries = padded * static_cast<std::size_t>(shape.n_group);
  const auto width = static_cast<std::size_t>(s.width);
  Scratch scratch(memory);
  s.queries = scratch.take<Pair>(queries * width / 2);
  s.high = scratch.take<float>(queries);
  s.weight = scratch.take<float>(queries);
  s.ranges = scratch.take<VisibleRange>(padded);
  s.keys = scratch.take<Pair>(kBlockKeys * width / 2);
  s.scores = scratch.take<float>(kMaxStripRows * kScoreStride);
  visible_ranges(shape, entries, rows, s.ranges);
  std::fill(s.ranges + rows.n_rows, s.ranges + s.n_padded, s.ranges[rows.n_rows - 1]);
  for (int g = 0; g < shape.n_group; ++g) {
    for (std::int32_t r = 0; r < s.n_padded; ++r) {
      const float* q = r < rows.n_rows ? row_of(shape, rows, r, g) : nullptr;
      pack_query(q, shape.spec.scale * kLog2E, shape.key_dim, s.width,
                 s.queries + (std::int64_t{g} * s.n_padded + r) * s.width / 2);
    }
  }
  return s;
}

// kStart is the initial value of a block's columns, and fold() adds a strip's exponents (score - high, base 2) to them.
// Rounding may leave a score above the row's log-sum-exp, by less than its own error.
template <ColumnFold kFold>
inline constexpr float kStart = kFold == ColumnFold::kMax ? -HUGE_VALF : 0.0F;

template <ColumnFold kFold>
inline __m512 fold(__m512 column, __m512 exponents) {
  if constexpr (kFold == ColumnFold::kMax) return _mm512_max_ps(column, exponents);
  if constexpr (kFold == ColumnFold::kSquares) exponents = _mm512_add_ps(exponents, exponents);
  return _mm512_add_ps(column, exp2_rounded(exponents));
}

// Folds a strip's rows of n columns, a multiple of 32.
template <Bf16Unit kUnit, ColumnFold kFold>
inline void fold_strip(const float* scores, const float* high, std::int32_t n, float* columns) {
  for (std::int32_t i = 0; i < n; i += 32) {
    __m512 column0 = _mm512_loadu_ps(columns + i);
    __m512 column1 = _mm512_loadu_ps(columns + i + 16);
    for (std::int32_t r = 0; r < kStripRows<kUnit>; ++r) {
      const float* row = scores + r * kScoreStride + i;
      const __m512 base = _mm512_set1_ps(high[r]);
      column0 = fold<kFold>(column0, _mm512_sub_ps(_mm512_load_ps(row), base));
      column1 = fold<kFold>(column1, _mm512_sub_ps(_mm512_load_ps(row + 16), base));
    }
    _mm512_storeu_ps(columns + i, column0);
    _mm512_storeu_ps(columns + i + 16, column1);
  }
}

// Merges a block's columns into those of the call.
template <ColumnFold kFold>
inline void merge_block(const float* block, std::int32_t n, float* columns) {
  for (std::int32_t i = 0; i < n; ++i) {
    columns[i] = kFold == ColumnFold::kMax ? std::max(columns[i], std::exp2(block[i])) : columns[i] + block[i];
  }
}

template <Bf16Unit kUnit, ColumnFold kFold>
void fold_rows(const AttentionShape& shape, const HeadEntries& entries, const QueryRows& rows, const float* log_sum_exp,
               EntryRange part, float* columns, std::span<std::byte> scratch) {
  const State s = make_state(shape, entries, rows, kStripRows<kUnit>, scratch);
  const std::int32_t last = std::min(part.last, s.ranges[rows.n_rows - 1].last);
  const PackedOrigin origin(shape, entries);
  for (int g = 0; g < shape.n_group; ++g) {
    for (std::int32_t r = 0; r < s.n_padded; ++r) {
      const std::int64_t index = static_cast<std::int64_t>(g) * s.n_padded + r;
      const bool real = r < rows.n_rows;
      const float lse = real ? log_sum_exp[static_cast<std::int64_t>(r) * shape.n_group + g] : HUGE_VALF;
      s.high[index] = lse == -HUGE_VALF ? 0.0F : static_cast<float>(static_cast<double>(lse) / kLn2);
      if (real) s.high[index] -= origin.lacking(row_of(shape, rows, r, g), shape.spec.scale * kLog2E);
    }
  }
  RunCursor cursor(entries);
  alignas(64) float folded[kBlockKeys];
  for (std::int32_t block = std::max(part.first, s.ranges[0].first); block < last; block += kBlockKeys) {
    const std::int32_t n = std::min(kBlockKeys, last - block);
    pack_keys(shape, cursor, origin, block, n, s.width, s.keys);
    for (int g = 0; g < shape.n_group; ++g) {
      std::fill_n(folded, kBlockKeys, kStart<kFold>);
      for (std::int32_t row = 0; row < s.n_padded; row += kStripRows<kUnit>) {
        const std::int64_t index = static_cast<std::int64_t>(g) * s.n_padded + row;
        const KeyRange keys = score_strip<kUnit>(s.queries + index * s.width / 2, s.ranges + row, s.width, s.keys,
                                                 block, n, shape.spec.soft_cap, s.scores);
        fold_strip<kUnit, kFold>(s.scores, s.high + index, keys.end - keys.begin, folded + keys.begin);
      }
      merge_block<kFold>(folded, n, columns + static_cast<std::int64_t>(g) * part.size() + (block - part.first));
    }
  }
}

// Adds a strip's scores of n columns, a multiple of 32, to the rows' sums.
template <Bf16Unit kUnit>
inline void sum_strip(const float* scores, std::int32_t n, float* high, float* weight) {
  for (std::int32_t r = 0; r < kStripRows<kUnit>; ++r, scores += kScoreStride) {
    __m512 greatest = _mm512_set1_ps(high[r]);
    for (std::int32_t i = 0; i < n; i += 16) greatest = _mm512_max_ps(greatest, _mm512_load_ps(scores + i));
    const float base = _mm512_reduce_max_ps(greatest);
    if (base == -HUGE_VALF) continue;
    __m512 sum0 = _mm512_setzero_ps(), sum1 = sum0;
    for (std::int32_t i = 0; i < n; i += 32) {
      sum0 = _mm512_add_ps(sum0, exp2_rounded(_mm512_sub_ps(_mm512_load_ps(scores + i), _mm512_set1_ps(base))));
      sum1 = _mm512_add_ps(sum1, exp2_rounded(_mm512_sub_ps(_mm512_load_ps(scores + i + 16), _mm512_set1_ps(base))));
    }
    weight[r] = weight[r] * std::exp2(high[r] - base) + _mm512_reduce_add_ps(_mm512_add_ps(sum0, sum1));
    high[r] = base;
  }
}

template <Bf16Unit kUnit>
void sum_rows(const AttentionShape& shape, const HeadEntries& entries, const QueryRows& rows, float* out,
              std::span<std::byte> scratch) {
  const State s = make_state(shape, entries, rows, kStripRows<kUnit>, scratch);
  const std::int32_t n_queries = s.n_padded * shape.n_group;
  std::fill_n(s.high, n_queries, -HUGE_VALF);
  std::fill_n(s.weight, n_queries, 0.0F);
  const PackedOrigin origin(shape, entries);
  RunCursor cursor(entries);
  const std::int32_t last = s.ranges[rows.n_rows - 1].last;
  for (std::int32_t block = s.ranges[0].first; block < last; block += kBlockKeys) {
    const std::int32_t n = std::min(kBlockKeys, last - block);
    pack_keys(shape, cursor, origin, block, n, s.width, s.keys);
    for (std::int32_t index = 0; index < n_queries; index += kStripRows<kUnit>) {
      const KeyRange part =
          score_strip<kUnit>(s.queries + std::int64_t{index} * s.width / 2, s.ranges + index % s.n_padded, s.width,
                             s.keys, block, n, shape.spec.soft_cap, s.scores);
      sum_strip<kUnit>(s.scores, part.end - part.begin, s.high + index, s.weight + index);
    }
  }
  for (int g = 0; g < shape.n_group; ++g) {
    for (std::int32_t r = 0; r < rows.n_rows; ++r) {
      const std::int64_t index = std::int64_t{g} * s.n_padded + r;
      const float high = s.high[index] + origin.lacking(row_of(shape, rows, r, g), shape.spec.scale * kLog2E);
      out[std::int64_t{r} * shape.n_group + g] =
          static_cast<float>(static_cast<double>(high) * kLn2 + std::log(static_cast<double>(s.weight[index])));
    }
  }
}

}  // namespace

std::size_t bf16_columns_scratch_bytes(const AttentionShape& shape, int n_rows) {
  const auto padded = static_cast<std::size_t>(n_rows + kMaxStripRows);
  const std::size_t queries = padded * static_cast<std::size_t>(shape.n_group);
  const auto width = static_cast<std::size_t>(round_up(shape.key_dim, kTerms));
  return Scratch::bytes<Pair>(queries * width / 2) + 2 * Scratch::bytes<float>(queries) +
         Scratch::bytes<VisibleRange>(padded) + Scratch::bytes<Pair>(kBlockKeys * width / 2) +
         Scratch::bytes<float>(kMaxStripRows * kScoreStride);
}

void bf16_fold_columns(Bf16Unit unit, ColumnFold fold, const AttentionShape& shape, const HeadEntries& entries,
                       const QueryRows& rows, const float* log_sum_exp, EntryRange part, float* columns,
                       std::span<std::byte> scratch) {
  const UnitInUse in_use(unit);
  const auto run = [&]<ColumnFold kFold>() {
    const auto rows_by =
        unit == Bf16Unit::kAmx ? fold_rows<Bf16Unit::kAmx, kFold> : fold_rows<Bf16Unit::kAvx512, kFold>;
    rows_by(shape, entries, rows, log_sum_exp, part, columns, scratch);
  };
  switch (fold) {
    case ColumnFold::kSum:
      return run.operator()<ColumnFold::kSum>();
    case ColumnFold::kSquares:
      return run.operator()<ColumnFold::kSquares>();
    case ColumnFold::kMax:
      return run.operator()<ColumnFold::kMax>();
  }
}

void bf16_row_log_sum_exps(Bf16Unit unit, const AttentionShape& shape, const HeadEntries& entries,
                           const QueryRows& rows, float* out, std::span<std::byte> scratch) {
  const UnitInUse in_use(unit);
  const auto sum = unit == Bf16Unit::kAmx ? sum_rows<Bf16Unit::kAmx> : sum_rows<Bf16Unit::kAvx512>;
  sum(shape, entries, rows, out, scratch);
}

}  // namespace winnow::kernels

HWY_POP_ATTRIBUTES

#else  // !HWY_ARCH_X86_64

namespace winnow::kernels {

std::size_t bf16_columns_scratch_bytes(const AttentionShape&, int) { return 0; }
void bf16_fold_columns(Bf16Unit, ColumnFold, const AttentionShape&, const HeadEntries&, const QueryRows&, const float*,
                       EntryRange, float*, std::span<std::byte>) {}
void bf16_row_log_sum_exps(Bf16Unit, const AttentionShape&, const HeadEntries&, const QueryRows&, float*,
                           std::span<std::byte>) {}

}  // namespace winnow::kernels
#endif
