// Attention in FlashAttention-2's order (arXiv 2307.08691): a strip of query rows against a block of keys at a time,
// with scores in the first-level cache, and maxima and sums per row.
#include "kernels/attention/bf16_attention.h"

#include <hwy/base.h>

#include <algorithm>
#include <array>
#include <cfloat>
#include <cmath>
#include <cstdint>

#include "kernels/attention/row_output.h"
#include "kernels/entries/rows.h"
#include "kernels/entries/run_cursor.h"
#include "kernels/simd/read_ahead.h"
#include "kernels/simd/tiling.h"

#if HWY_ARCH_X86_64

#include "kernels/simd/bf16_begin-inl.h"
#include "kernels/simd/bf16_products-inl.h"

namespace winnow::kernels {
namespace {

// The working memory of one call. Query row index = row * n_group + query head of the group.
struct State {
  int key_width;           // key_dim, padded
  int value_width;         // value_dim, padded
  std::int32_t n_queries;  // n_rows * n_group
  std::int32_t n_padded;   // rounded up to whole strips
  Pair* queries;           // [n_padded][key_width / 2], times scale * log2(e): scores are exponents of 2
  float* sums;             // [n_padded][value_width], unnormalised outputs
  float* high;             // [n_padded] running maximum of the row's scores
  float* weight;           // [n_padded][16] running sums of 2^(score - high), by lane
  VisibleRange* ranges;    // [n_padded]
  Pair* keys;              // [kBlockKeys / 16][key_width / 2][16]
  Pair* values;            // [value_width / 16][kBlockKeys / 2][16]
  float* scores;           // [kMaxStripRows][kScoreStride], then the weights as pairs
};

State make_state(const AttentionShape& shape, std::int32_t n_rows, std::int32_t strip, std::span<std::byte> memory) {
  State s{};
  s.key_width = round_up(shape.key_dim, kTerms);
  s.value_width = round_up(shape.value_dim, kTerms);
  s.n_queries = n_rows * shape.n_group;
  s.n_padded = round_up(s.n_queries, strip);
  const auto padded = static_cast<std::size_t>(s.n_padded);
  const auto key_width = static_cast<std::size_t>(s.key_width);
  const auto value_width = static_cast<std::size_t>(s.value_width);
  Scratch scratch(memory);
  s.queries = scratch.take<Pair>(padded * key_width / 2);
  s.sums = scratch.take<float>(padded * value_width);
  s.high = scratch.take<float>(padded);
  s.weight = scratch.take<float>(padded * 16);
  s.ranges = scratch.take<VisibleRange>(padded);
  s.keys = scratch.take<Pair>(kBlockKeys * key_width / 2);
  s.values = scratch.take<Pair>(kBlockKeys / 2 * value_width);
  s.scores = scratch.take<float>(kMaxStripRows * kScoreStride);
  std::fill_n(s.sums, padded * value_width, 0.0F);
  std::fill_n(s.high, padded, -HUGE_VALF);
  std::fill_n(s.weight, padded * 16, 0.0F);
  return s;
}

// Fills queries and ranges. Rows after the last repeat its range with a query of zeros.
void pack_queries(const AttentionShape& shape, const QueryRows& rows, const VisibleRange* ranges, const State& s) {
  for (std::int32_t index = 0; index < s.n_padded; ++index) {
    const std::int32_t query = std::min(index, s.n_queries - 1);
    s.ranges[index] = ranges[query / shape.n_group];
    const float* q = rows.q + query / shape.n_group * rows.row_stride +
                     static_cast<std::int64_t>(query % shape.n_group) * shape.key_dim;
    pack_query(index < s.n_queries ? q : nullptr, shape.spec.scale * kLog2E, shape.key_dim, s.key_width,
               s.queries + static_cast<std::int64_t>(index) * s.key_width / 2);
  }
}

// Turns one row's scores [n], n a multiple of 32, into weights 2^(score - maximum), as pairs at the beginning of the
// same memory, and rescales high, weight and sums to the new maximum.
inline void soften_row(float* scores, std::int32_t n, int width, float* high, float* weight, float* sums) {
  __m512 top0 = _mm512_load_ps(scores);
  __m512 top1 = _mm512_load_ps(scores + 16);
  for (std::int32_t i = 32; i < n; i += 32) {
    top0 = _mm512_max_ps(top0, _mm512_load_ps(scores + i));
    top1 = _mm512_max_ps(top1, _mm512_load_ps(scores + i + 16));
  }
  float top = _mm512_reduce_max_ps(_mm512_max_ps(top0, top1));
  if (top > FLT_MAX) {  // scores beyond float32's range take all the weight
    for (std::int32_t i = 0; i < n; ++i) scores[i] = std::min(scores[i], FLT_MAX);
    top = FLT_MAX;
  }
  __m512 total0 = _mm512_load_ps(weight);
  if (top > *high) {
    const float rescale = *high == -HUGE_VALF ? 0.0F : std::exp2(*high - top);
    const __m512 factor = _mm512_set1_ps(rescale);
    total0 = _mm512_mul_ps(total0, factor);
    for (int c = 0; c < width; c += 16) _mm512_store_ps(sums + c, _mm512_mul_ps(factor, _mm512_load_ps(sums + c)));
    *high = top;
  }
  const __m512 base = _mm512_set1_ps(*high == -HUGE_VALF ? 0.0F : *high);
  __m512 total1 = _mm512_setzero_ps();
  for (std::int32_t i = 0; i < n; i += 32) {
    const __m512 w0 = exp2_rounded(_mm512_sub_ps(_mm512_load_ps(scores + i), base));
    const __m512 w1 = exp2_rounded(_mm512_sub_ps(_mm512_load_ps(scores + i + 16), base));
    total0 = _mm512_add_ps(total0, w0);
    total1 = _mm512_add_ps(total1, w1);
    _mm512_store_si512(scores + i / 2, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(w1, w0)));
  }
  _mm512_store_ps(weight, _mm512_add_ps(total0, total1));
}

// Computes the attention of a strip that begins at query row `query` to the packed block of entries [block, block + n).
template <Bf16Unit kUnit>
void attend_strip(const State& s, const AttentionSpec& spec, std::int32_t query, std::int32_t block, std::int32_t n) {
  const Pair* queries = s.queries + static_cast<std::int64_t>(query) * s.key_width / 2;
  float* sums = s.sums + static_cast<std::int64_t>(query) * s.value_width;
  const KeyRange part =
      score_strip<kUnit>(queries, s.ranges + query, s.key_width, s.keys, block, n, spec.soft_cap, s.scores);
  if (part.begin == part.end) return;
  for (std::int32_t r = 0; r < kStripRows<kUnit>; ++r) {
    soften_row(s.scores + r * kScoreStride, part.end - part.begin, s.value_width, s.high + query + r,
               s.weight + (query + r) * 16, sums + std::ptrdiff_t{r} * s.value_width);
  }
  multiply<kUnit, true>({.left = reinterpret_cast<const Pair*>(s.scores) - part.begin / 2,
                         .left_stride = kScoreStride,
                         .right = s.values,
                         .right_pairs = kBlockKeys / 2,
                         .first_pair = part.begin / 2,
                         .last_pair = part.end / 2,
                         .first_column = 0,
                         .last_column = s.value_width,
                         .out = sums,
                         .out_stride = s.value_width});
}

void write_outputs(const AttentionShape& shape, const State& s, const QueryRows& rows, const PackedOrigin& origin,
                   const CausalOutput& output) {
  for (std::int32_t index = 0; index < s.n_queries; ++index) {
    const std::int32_t r = index / shape.n_group;
    const std::int32_t g = index % shape.n_group;
    const float weight = _mm512_reduce_add_ps(_mm512_load_ps(s.weight + index * 16));
    const float* q = rows.q + r * rows.row_stride + static_cast<std::int64_t>(g) * shape.key_dim;
    const float high = s.high[index] + origin.lacking(q, shape.spec.scale * kLog2E);
    const RowOutput row = finish_row(shape.spec, g, high, weight);
    const __m512 factor = _mm512_set1_ps(row.factor);
    const float* sums = s.sums + static_cast<std::int64_t>(index) * s.value_width;
    float* out = output.out + r * output.row_stride + static_cast<std::int64_t>(g) * shape.value_dim;
    for (int c = 0; c < shape.value_dim; c += 16) {
      _mm512_storeu_ps(out + c, _mm512_mul_ps(factor, _mm512_load_ps(sums + c)));
    }
    if (output.log_sum_exp) output.log_sum_exp[static_cast<std::int64_t>(r) * shape.n_group + g] = row.log_sum_exp;
  }
}

// Adds the stored rows of entries [first, first + n) to the rows that are prefetched next. Returns their bytes.
std::size_t add_rows(const AttentionShape& shape, RunCursor& cursor, std::int32_t first, std::int32_t n,
                     ReadOrder& order) {
  std::size_t bytes = 0;
  for (const std::int32_t last = first + n; first < last;) {
    const RunCursor::Piece piece = cursor.seek(first);
    const std::int32_t count = std::min(piece.count, last - first);
    const auto add = [&](RowKind kind, int dim) {
      const std::size_t of_rows = static_cast<std::size_t>(count) * row_bytes(row_type(*piece.run, kind), dim);
      order.add(row_at(shape, *piece.run, kind, piece.offset), of_rows);
      bytes += of_rows;
    };
    add(RowKind::kKey, shape.key_dim);
    add(RowKind::kValue, shape.value_dim);
    first += count;
  }
  return bytes;
}

// Computes the attention of at most kCausalBlockRows rows.
template <Bf16Unit kUnit>
void attend_rows(const AttentionShape& shape, const HeadEntries& entries, const QueryRows& rows,
                 const CausalOutput& output, std::span<std::byte> scratch) {
  std::array<VisibleRange, kCausalBlockRows> ranges;
  visible_ranges(shape, entries, rows, ranges.data());
  const State s = make_state(shape, rows.n_rows, kStripRows<kUnit>, scratch);
  pack_queries(shape, rows, ranges.data(), s);
  const std::int32_t last = ranges[static_cast<std::size_t>(rows.n_rows - 1)].last;
  const PackedOrigin origin(shape, entries);
  RunCursor key_cursor(entries), value_cursor(entries), next_cursor(entries);
  ReadOrder order;
  Ahead ahead(order, false);  // they exceed the first-level cache
  for (std::int32_t block = ranges[0].first; block < last; block += kBlockKeys) {
    const std::int32_t n = std::min(kBlockKeys, last - block), n_next = std::min(kBlockKeys, last - block - n);
    pack_keys(shape, key_cursor, origin, block, n, s.key_width, s.keys);
    pack_values(shape, value_cursor, block, n, s.value_width, kBlockKeys, s.values);
    ahead.spread(add_rows(shape, next_cursor, block + n, n_next, order), s.n_padded / kStripRows<kUnit>);
    for (std::int32_t query = 0; query < s.n_padded; query += kStripRows<kUnit>) {
      ahead.fetch();
      attend_strip<kUnit>(s, shape.spec, query, block, n);
    }
  }
  write_outputs(shape, s, rows, origin, output);
}

}  // namespace

bool prefers_bf16_attention(const AttentionShape& shape) {
  return current_bf16_unit() != Bf16Unit::kNone && shape.key_type != EntryType::kF32 &&
         shape.value_type != EntryType::kF32;
}

std::size_t bf16_attention_scratch_bytes(const AttentionShape& shape) {
  const auto padded = static_cast<std::size_t>(kCausalBlockRows * shape.n_group + kMaxStripRows);
  const auto key_width = static_cast<std::size_t>(round_up(shape.key_dim, kTerms));
  const auto value_width = static_cast<std::size_t>(round_up(shape.value_dim, kTerms));
  return Scratch::bytes<Pair>(padded * key_width / 2) + Scratch::bytes<float>(padded * value_width) +
         Scratch::bytes<float>(padded) + Scratch::bytes<float>(padded * 16) + Scratch::bytes<VisibleRange>(padded) +
         Scratch::bytes<Pair>(kBlockKeys / 2 * key_width) + Scratch::bytes<Pair>(kBlockKeys / 2 * value_width) +
         Scratch::bytes<float>(kMaxStripRows * kScoreStride);
}

void bf16_attention(Bf16Unit unit, const AttentionShape& shape, const HeadEntries& entries, const QueryRows& rows,
                    const CausalOutput& output, std::span<std::byte> scratch) {
  const UnitInUse in_use(unit);
  if (unit == Bf16Unit::kAmx) {
    attend_rows<Bf16Unit::kAmx>(shape, entries, rows, output, scratch);
  } else {
    attend_rows<Bf16Unit::kAvx512>(shape, entries, rows, output, scratch);
  }
}

}  // namespace winnow::kernels

HWY_POP_ATTRIBUTES

#else  // !HWY_ARCH_X86_64

namespace winnow::kernels {

bool prefers_bf16_attention(const AttentionShape&) { return false; }
std::size_t bf16_attention_scratch_bytes(const AttentionShape&) { return 0; }
void bf16_attention(Bf16Unit, const AttentionShape&, const HeadEntries&, const QueryRows&, const CausalOutput&,
                    std::span<std::byte>) {}

}  // namespace winnow::kernels
#endif
