// Blocked attention with an online softmax (FlashAttention, arXiv 2205.14135). The query rows lie in the lanes: a
// block's scores are keys x packed queries, its weighted sums transposed values x weights, both by register tiles. So
// keys and values only need to be converted to float32, and a softmax never sums the lanes of a vector.
#include "kernels/simd/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/causal_attention.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cfloat>

#include "kernels/attention/attention.h"
#include "kernels/attention/bf16_attention.h"
#include "kernels/attention/row_output.h"
#include "kernels/entries/packing-inl.h"
#include "kernels/entries/run_cursor.h"
#include "kernels/simd/exp-inl.h"
#include "kernels/simd/tiling.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The working memory of one call. Query row index = row * n_group + query head of the group; a panel is kPanel
// neighbouring query rows, of which the last one has as many vectors as are needed. Arrays "per panel p" consist of the
// panels' own parts.
struct CausalState {
  std::int32_t n_queries;  // n_rows * n_group
  std::int32_t n_padded;   // rounded up to whole vectors
  float* queries;          // per panel p: [key_dim][width of p], times scale * log2(e): scores are exponents of 2
  float* sums;             // per panel p: [value_dim][width of p], unnormalised outputs
  float* high;             // [n_padded] running maximum of the row's scores
  float* weight;           // [n_padded] running sum of 2^(score - high)
  std::int32_t* first;     // [n_padded] entries [first, last) are seen by the row
  std::int32_t* last;      // [n_padded]
  float* keys;             // [kCausalKeyBlock + kTileRows][key_dim]
  float* values;           // [kCausalKeyBlock + kTileRows][value_dim]
  float* scores;           // [kCausalKeyBlock + kTileRows][width of the panel]
};

CausalState make_state(const AttentionShape& shape, std::int32_t n_rows, std::span<std::byte> memory) {
  CausalState s{};
  s.n_queries = n_rows * shape.n_group;
  s.n_padded = round_up(s.n_queries, std::max(kLanes, 4));
  const auto padded = static_cast<std::size_t>(s.n_padded);
  const auto d = static_cast<std::size_t>(shape.key_dim);
  const auto value_dim = static_cast<std::size_t>(shape.value_dim);
  Scratch scratch(memory);
  s.queries = scratch.take<float>(padded * d);
  s.sums = scratch.take<float>(padded * value_dim);
  s.high = scratch.take<float>(padded);
  s.weight = scratch.take<float>(padded);
  s.first = scratch.take<std::int32_t>(padded);
  s.last = scratch.take<std::int32_t>(padded);
  s.keys = scratch.take<float>((kCausalKeyBlock + kTileRows) * d);
  s.values = scratch.take<float>((kCausalKeyBlock + kTileRows) * value_dim);
  s.scores = scratch.take<float>((kCausalKeyBlock + kTileRows) * kPanel);
  std::fill_n(s.sums, padded * value_dim, 0.0F);
  std::fill_n(s.high, padded, -HUGE_VALF);
  std::fill_n(s.weight, padded, 0.0F);
  return s;
}

// Fills queries, first and last. The lanes after the last query row repeat its range with a query of zeros.
HWY_INLINE void pack_queries(const AttentionShape& shape, const QueryRows& rows, const VisibleRange* ranges,
                             const CausalState& s) {
  const F d;
  const VF factor = hn::Set(d, shape.spec.scale * kLog2E);
  alignas(64) float four[4 * kMaxHeadDim];
  for (std::int32_t index = 0; index < s.n_padded; index += 4) {
    for (std::int32_t j = 0; j < 4; ++j) {
      const std::int32_t query = std::min(index + j, s.n_queries - 1);
      const VisibleRange& range = ranges[query / shape.n_group];
      s.first[index + j] = range.first;
      s.last[index + j] = range.last;
      const float* q = rows.q + query / shape.n_group * rows.row_stride +
                       static_cast<std::int64_t>(query % shape.n_group) * shape.key_dim;
      float* out = four + j * shape.key_dim;
      const VF scale = index + j < s.n_queries ? factor : hn::Zero(d);
      for (int c = 0; c < shape.key_dim; c += kLanes) hn::Store(hn::Mul(scale, hn::LoadU(d, q + c)), d, out + c);
    }
    const std::int32_t panel = index / kPanel * kPanel;
    const std::int32_t width = std::min(kPanel, s.n_padded - panel);
    transpose_four(four, shape.key_dim, width,
                   s.queries + static_cast<std::int64_t>(panel) * shape.key_dim + (index - panel));
  }
}

// Masks the entries that a panel's rows do not see: writes -inf to scores [n][kVecs * kLanes] of entries [entry, entry
// + n).
template <int kVecs>
HWY_INLINE void hide_scores(const std::int32_t* first, const std::int32_t* last, std::int32_t entry, std::int32_t n,
                            float* scores) {
  const F d;
  const hn::RebindToSigned<F> di;
  const VF hidden = hn::Set(d, -HUGE_VALF);
  for (std::int32_t i = 0; i < n; ++i, scores += kVecs * kLanes) {
    const auto at = hn::Set(di, entry + i);
    for (int v = 0; v < kVecs; ++v) {
      const auto before = hn::Gt(hn::Load(di, first + v * kLanes), at);
      const auto seen = hn::Gt(hn::Load(di, last + v * kLanes), at);
      float* score = scores + v * kLanes;
      const VF value = hn::IfThenElse(hn::RebindMask(d, seen), hn::Load(d, score), hidden);
      hn::Store(hn::IfThenElse(hn::RebindMask(d, before), hidden, value), d, score);
    }
  }
}

// Turns the scores [n][kVecs * kLanes] of a panel into weights 2^(score - maximum), and updates the rows' high and
// weight.
// rescale: the factors that the new maxima give earlier sums
template <int kVecs>
HWY_INLINE void soften(float* HWY_RESTRICT scores, std::int32_t n, float* HWY_RESTRICT high, float* HWY_RESTRICT weight,
                       VF (&rescale)[kVecs]) {
  const F d;
  VF top[kVecs];
  VF base[kVecs];
  VF total[kVecs];
#pragma GCC unroll 16
  for (int v = 0; v < kVecs; ++v) top[v] = hn::Set(d, -HUGE_VALF);
  for (std::int32_t i = 0; i < n; ++i) {
#pragma GCC unroll 16
    for (int v = 0; v < kVecs; ++v) top[v] = hn::Max(top[v], hn::Load(d, scores + (i * kVecs + v) * kLanes));
  }
#pragma GCC unroll 16
  for (int v = 0; v < kVecs; ++v) {
    const VF old = hn::Load(d, high + v * kLanes);
    const VF now = hn::Max(old, hn::Min(top[v], hn::Set(d, FLT_MAX)));
    hn::Store(now, d, high + v * kLanes);
    base[v] = hn::IfThenZeroElse(hn::Eq(now, hn::Set(d, -HUGE_VALF)), now);
    rescale[v] = exp2_of_negative(d, hn::Sub(old, base[v]));
    total[v] = hn::Zero(d);
  }
  for (std::int32_t i = 0; i < n; ++i) {
#pragma GCC unroll 16
    for (int v = 0; v < kVecs; ++v) {
      float* score = scores + (i * kVecs + v) * kLanes;
      const VF w = exp2_of_negative(d, hn::Sub(hn::Load(d, score), base[v]));
      hn::Store(w, d, score);
      total[v] = hn::Add(total[v], w);
    }
  }
#pragma GCC unroll 16
  for (int v = 0; v < kVecs; ++v) {
    hn::Store(hn::MulAdd(hn::Load(d, weight + v * kLanes), rescale[v], total[v]), d, weight + v * kLanes);
  }
}

// Computes sums = sums * rescale + values * weights for kColumns neighbouring columns of the values.
//   values [n][value_dim] from the first column on, weights [n][kVecs * kLanes], sums [kColumns][kVecs * kLanes]
template <int kColumns, int kVecs>
HWY_INLINE void add_values(const float* values, int value_dim, const float* weights, std::int32_t n,
                           const VF (&rescale)[kVecs], float* sums) {
  const F d;
  VF acc[kColumns][kVecs];
#pragma GCC unroll 16
  for (int c = 0; c < kColumns; ++c) {
#pragma GCC unroll 16
    for (int v = 0; v < kVecs; ++v) acc[c][v] = hn::Mul(rescale[v], hn::Load(d, sums + (c * kVecs + v) * kLanes));
  }
  multiply_add<Left::kByTerm>(values, value_dim, weights, n, acc);
#pragma GCC unroll 16
  for (int c = 0; c < kColumns; ++c) {
#pragma GCC unroll 16
    for (int v = 0; v < kVecs; ++v) hn::Store(acc[c][v], d, sums + (c * kVecs + v) * kLanes);
  }
}

// Computes the attention of a panel that begins at index `first_query` to the converted block of entries [block, block
// + n).
template <int kVecs>
void attend_panel(const AttentionShape& shape, const CausalState& s, std::int32_t first_query, std::int32_t block,
                  std::int32_t n) {
  constexpr std::int32_t kWidth = kVecs * kLanes;
  const int d = shape.key_dim;
  const std::int32_t* first_seen = s.first + first_query;
  const std::int32_t* last_seen = s.last + first_query;
  // Later rows see at least as many entries at the end, and at most as many at the beginning.
  const std::int32_t begin = std::max(first_seen[0], block);
  const std::int32_t end = std::min(last_seen[kWidth - 1], block + n);
  if (begin >= end) return;
  const float* queries = s.queries + static_cast<std::int64_t>(first_query) * d;
  const int value_dim = shape.value_dim;
  float* sums = s.sums + static_cast<std::int64_t>(first_query) * value_dim;

  const float* keys = s.keys + static_cast<std::int64_t>(begin - block) * d;
  // The last tile may read and score keys after the end of the block's: there is memory for kCausalKeyBlock + kTileRows
  // rows.
  for (std::int32_t i = 0; i < end - begin; i += kTileRows) {
    multiply_tile<kVecs>(keys + static_cast<std::int64_t>(i) * d, queries, d, s.scores + i * kWidth, kWidth);
  }
  if (shape.spec.soft_cap != 0) {
    soft_cap_scores(F(), s.scores, std::int64_t{end - begin} * kWidth, shape.spec.soft_cap * kLog2E);
  }
  if (first_seen[kWidth - 1] > begin || last_seen[0] < end) {
    hide_scores<kVecs>(first_seen, last_seen, begin, end - begin, s.scores);
  }
  VF rescale[kVecs];
  soften<kVecs>(s.scores, end - begin, s.high + first_query, s.weight + first_query, rescale);
  const float* values = s.values + static_cast<std::int64_t>(begin - block) * value_dim;
  for (int c = 0; c < value_dim; c += 16) {
    add_values<6, kVecs>(values + c, value_dim, s.scores, end - begin, rescale, sums + c * kWidth);
    add_values<5, kVecs>(values + c + 6, value_dim, s.scores, end - begin, rescale, sums + (c + 6) * kWidth);
    add_values<5, kVecs>(values + c + 11, value_dim, s.scores, end - begin, rescale, sums + (c + 11) * kWidth);
  }
}

HWY_INLINE void attend_panels(const AttentionShape& shape, const CausalState& s, std::int32_t block, std::int32_t n) {
  std::int32_t query = 0;
  for (; query + kPanel <= s.n_padded; query += kPanel) attend_panel<kTileVecs>(shape, s, query, block, n);
  switch ((s.n_padded - query) / kLanes) {
    case 1:
      return attend_panel<1>(shape, s, query, block, n);
    case 2:
      return attend_panel<std::min(2, kTileVecs)>(shape, s, query, block, n);
    case 3:
      return attend_panel<std::min(3, kTileVecs)>(shape, s, query, block, n);
    default:
      return;
  }
}

void write_outputs(const AttentionShape& shape, const CausalState& s, const CausalOutput& output) {
  for (std::int32_t index = 0; index < s.n_queries; ++index) {
    const std::int32_t r = index / shape.n_group;
    const std::int32_t g = index % shape.n_group;
    const RowOutput row = finish_row(shape.spec, g, s.high[index], s.weight[index]);
    const std::int32_t panel = index / kPanel * kPanel;
    const std::int32_t width = std::min(kPanel, s.n_padded - panel);
    const float* sums = s.sums + static_cast<std::int64_t>(panel) * shape.value_dim + (index - panel);
    float* out = output.out + r * output.row_stride + static_cast<std::int64_t>(g) * shape.value_dim;
    for (int i = 0; i < shape.value_dim; ++i) out[i] = sums[i * width] * row.factor;
    if (output.log_sum_exp) output.log_sum_exp[static_cast<std::int64_t>(r) * shape.n_group + g] = row.log_sum_exp;
  }
}

// Computes the attention of at most kCausalBlockRows rows.
void attend_rows(const AttentionShape& shape, const HeadEntries& entries, const QueryRows& rows,
                 const CausalOutput& output, std::span<std::byte> scratch) {
  std::array<VisibleRange, kCausalBlockRows> ranges;
  visible_ranges(shape, entries, rows, ranges.data());
  const CausalState s = make_state(shape, rows.n_rows, scratch);
  pack_queries(shape, rows, ranges.data(), s);
  const std::int32_t first = ranges[0].first;
  const std::int32_t last = ranges[static_cast<std::size_t>(rows.n_rows - 1)].last;
  RunCursor key_cursor(entries);
  RunCursor value_cursor(entries);
  for (std::int32_t block = first; block < last; block += kCausalKeyBlock) {
    const std::int32_t n = std::min(kCausalKeyBlock, last - block);
    expand_rows<true>(shape, key_cursor, block, n, s.keys);
    expand_rows<false>(shape, value_cursor, block, n, s.values);
    attend_panels(shape, s, block, n);
  }
  write_outputs(shape, s, output);
}

void causal_attention(const AttentionShape& shape, const HeadEntries& entries, const QueryRows& rows,
                      const CausalOutput& output, std::span<std::byte> scratch) {
  const Bf16Unit unit = prefers_bf16_attention(shape) ? current_bf16_unit() : Bf16Unit::kNone;
  for (std::int32_t first = 0; first < rows.n_rows; first += kCausalBlockRows) {
    QueryRows some = rows;
    some.q += first * rows.row_stride;
    some.n_rows = std::min(kCausalBlockRows, rows.n_rows - first);
    some.n_visible += first;
    some.first_position += first;
    CausalOutput out = output;
    out.out += first * output.row_stride;
    if (out.log_sum_exp) out.log_sum_exp += static_cast<std::int64_t>(first) * shape.n_group;
    if (unit != Bf16Unit::kNone) {
      bf16_attention(unit, shape, entries, some, out, scratch);
    } else {
      attend_rows(shape, entries, some, out, scratch);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace winnow::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::kernels {

std::size_t causal_attention_scratch_bytes(const AttentionShape& shape) {
  const auto padded = static_cast<std::size_t>(round_up(kCausalBlockRows * shape.n_group, 16));  // the widest vectors
  const auto keys = static_cast<std::size_t>(shape.key_dim);
  const auto values = static_cast<std::size_t>(shape.value_dim);
  const std::size_t bytes = Scratch::bytes<float>(padded * keys) + Scratch::bytes<float>(padded * values) +
                            4 * Scratch::bytes<float>(padded) +
                            Scratch::bytes<float>((kCausalKeyBlock + kTileRows) * keys) +
                            Scratch::bytes<float>((kCausalKeyBlock + kTileRows) * values) +
                            Scratch::bytes<float>((kCausalKeyBlock + kTileRows) * 64);  // the widest panel
  return std::max(bytes, bf16_attention_scratch_bytes(shape));
}

HWY_EXPORT(causal_attention);

void causal_attention(const AttentionShape& shape, const HeadEntries& entries, const QueryRows& rows,
                      const CausalOutput& output, std::span<std::byte> scratch) {
  assert(shape.is_supported());
  assert(scratch.size() >= causal_attention_scratch_bytes(shape));
  HWY_DYNAMIC_DISPATCH(causal_attention)(shape, entries, rows, output, scratch);
}

}  // namespace winnow::kernels
#endif
