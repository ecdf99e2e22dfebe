// add_column_sums (H2O) by products of bfloat16: the same scores as in bf16_attention, whose log-sum-exps it reads.
#include <hwy/base.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/bf16_attention.h"
#include "kernels/rows.h"
#include "kernels/run_cursor.h"
#include "kernels/tiling.h"

#if HWY_ARCH_X86_64

#include "kernels/bf16_begin-inl.h"
#include "kernels/bf16_products-inl.h"

namespace winnow::kernels {
namespace {

// Query row index = query head of the group * n_padded + row: a strip has rows of one head.
struct State {
  int width;
  std::int32_t n_padded;  // n_rows, to whole strips
  Pair* queries;          // [n_group * n_padded][width / 2]
  float* high;            // [n_group * n_padded] log-sum-exp of the row, base 2; inf behind the last row
  VisibleRange* ranges;   // [n_padded]
  Pair* keys;             // [kBlockKeys / 16][width / 2][16]
  float* scores;          // [kMaxStripRows][kScoreStride]
};

State make_state(const AttentionShape& shape, std::int32_t n_rows, std::int32_t strip, std::span<std::byte> memory) {
  State s{};
  s.width = round_up(shape.key_dim, kTerms);
  s.n_padded = round_up(n_rows, strip);
  const auto padded = static_cast<std::size_t>(s.n_padded);
  const std::size_t queries = padded * static_cast<std::size_t>(shape.n_group);
  const auto width = static_cast<std::size_t>(s.width);
  Scratch scratch(memory);
  s.queries = scratch.take<Pair>(queries * width / 2);
  s.high = scratch.take<float>(queries);
  s.ranges = scratch.take<VisibleRange>(padded);
  s.keys = scratch.take<Pair>(kBlockKeys * width / 2);
  s.scores = scratch.take<float>(kMaxStripRows * kScoreStride);
  return s;
}

// Adds the sums over a strip's rows of 2^(score - high) of n columns, a multiple of 32, to totals.
template <Bf16Unit kUnit>
inline void add_strip(const float* scores, const float* high, std::int32_t n, float* totals) {
  for (std::int32_t i = 0; i < n; i += 32) {
    __m512 total0 = _mm512_loadu_ps(totals + i);
    __m512 total1 = _mm512_loadu_ps(totals + i + 16);
    for (std::int32_t r = 0; r < kStripRows<kUnit>; ++r) {
      const float* row = scores + r * kScoreStride + i;
      const __m512 base = _mm512_set1_ps(high[r]);
      // Rounding may leave a score above the row's log-sum-exp, by less than its own error.
      total0 = _mm512_add_ps(total0, exp2_rounded(_mm512_sub_ps(_mm512_load_ps(row), base)));
      total1 = _mm512_add_ps(total1, exp2_rounded(_mm512_sub_ps(_mm512_load_ps(row + 16), base)));
    }
    _mm512_storeu_ps(totals + i, total0);
    _mm512_storeu_ps(totals + i + 16, total1);
  }
}

template <Bf16Unit kUnit>
void add_sums(const AttentionShape& shape, const HeadEntries& entries, const QueryRows& rows, const float* log_sum_exp,
              std::int32_t n_columns, float* sums, std::span<std::byte> scratch) {
  const State s = make_state(shape, rows.n_rows, kStripRows<kUnit>, scratch);
  visible_ranges(shape, entries, rows, s.ranges);
  const std::int32_t last = std::min(n_columns, s.ranges[rows.n_rows - 1].last);
  std::fill(s.ranges + rows.n_rows, s.ranges + s.n_padded, s.ranges[rows.n_rows - 1]);
  for (int g = 0; g < shape.n_group; ++g) {
    for (std::int32_t r = 0; r < s.n_padded; ++r) {
      const std::int64_t index = static_cast<std::int64_t>(g) * s.n_padded + r;
      const bool real = r < rows.n_rows;
      const float* q = rows.q + r * rows.row_stride + static_cast<std::int64_t>(g) * shape.key_dim;
      pack_query(real ? q : nullptr, shape.spec.scale * kLog2E, shape.key_dim, s.width,
                 s.queries + index * s.width / 2);
      const float lse = real ? log_sum_exp[static_cast<std::int64_t>(r) * shape.n_group + g] : HUGE_VALF;
      s.high[index] = lse == -HUGE_VALF ? 0.0F : static_cast<float>(static_cast<double>(lse) / kLn2);
    }
  }
  RunCursor cursor(entries);
  alignas(64) float totals[kBlockKeys];
  for (std::int32_t block = s.ranges[0].first; block < last; block += kBlockKeys) {
    const std::int32_t n = std::min(kBlockKeys, last - block);
    pack_keys(shape, cursor, block, n, s.width, s.keys);
    for (int g = 0; g < shape.n_group; ++g) {
      std::fill_n(totals, kBlockKeys, 0.0F);
      for (std::int32_t row = 0; row < s.n_padded; row += kStripRows<kUnit>) {
        const std::int64_t index = static_cast<std::int64_t>(g) * s.n_padded + row;
        const KeyRange part = score_strip<kUnit>(s.queries + index * s.width / 2, s.ranges + row, s.width, s.keys,
                                                 block, n, shape.spec.soft_cap, s.scores);
        add_strip<kUnit>(s.scores, s.high + index, part.end - part.begin, totals + part.begin);
      }
      float* out = sums + static_cast<std::int64_t>(g) * n_columns + block;
      for (std::int32_t i = 0; i < n; ++i) out[i] += totals[i];
    }
  }
}

}  // namespace

std::size_t bf16_column_sums_scratch_bytes(const AttentionShape& shape, int n_rows) {
  const auto padded = static_cast<std::size_t>(n_rows + kMaxStripRows);
  const std::size_t queries = padded * static_cast<std::size_t>(shape.n_group);
  const auto width = static_cast<std::size_t>(round_up(shape.key_dim, kTerms));
  return Scratch::bytes<Pair>(queries * width / 2) + Scratch::bytes<float>(queries) +
         Scratch::bytes<VisibleRange>(padded) + Scratch::bytes<Pair>(kBlockKeys * width / 2) +
         Scratch::bytes<float>(kMaxStripRows * kScoreStride);
}

void bf16_column_sums(Bf16Unit unit, const AttentionShape& shape, const HeadEntries& entries, const QueryRows& rows,
                      const float* log_sum_exp, std::int32_t n_columns, float* sums, std::span<std::byte> scratch) {
  const UnitInUse in_use(unit);
  if (unit == Bf16Unit::kAmx) {
    add_sums<Bf16Unit::kAmx>(shape, entries, rows, log_sum_exp, n_columns, sums, scratch);
  } else {
    add_sums<Bf16Unit::kAvx512>(shape, entries, rows, log_sum_exp, n_columns, sums, scratch);
  }
}

}  // namespace winnow::kernels

HWY_POP_ATTRIBUTES

#else  // !HWY_ARCH_X86_64

namespace winnow::kernels {

std::size_t bf16_column_sums_scratch_bytes(const AttentionShape&, int) { return 0; }
void bf16_column_sums(Bf16Unit, const AttentionShape&, const HeadEntries&, const QueryRows&, const float*, std::int32_t,
                      float*, std::span<std::byte>) {}

}  // namespace winnow::kernels
#endif
