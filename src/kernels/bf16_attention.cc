// FlashAttention-2's order (arXiv 2307.08691): a strip of query rows against a block of keys at a time, scores in the
// first-level cache, maxima and sums per row.
#include "kernels/bf16_attention.h"

#include <hwy/base.h>

#include <algorithm>
#include <array>
#include <cfloat>
#include <cmath>
#include <cstdint>

#include "kernels/rows.h"
#include "kernels/run_cursor.h"
#include "kernels/tiling.h"

#if HWY_ARCH_X86_64

// gcc 12 finds uninitialised variables in its own header of the vector instructions.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512cd,avx512bf16,amx-tile,amx-bf16,fma,f16c")

#include "kernels/bf16_tiles-inl.h"

namespace winnow::kernels {
namespace {

inline constexpr std::int32_t kBlockKeys = 256;
// Rows of the score buffer are a line longer than a power of two, so that a column's rows lie in different sets
// of the first-level cache.
inline constexpr std::int32_t kScoreStride = kBlockKeys + 16;

// Query rows that pass over a block together: two AMX tiles, or four register tiles of six rows.
template <Bf16Unit kUnit>
inline constexpr std::int32_t kStripRows = kUnit == Bf16Unit::kAmx ? 32 : 24;
inline constexpr std::int32_t kMaxStripRows = 32;

// Everything that one call works on. Query row index = row * n_group + query head of the group.
struct State {
  int width;               // head_dim, padded
  std::int32_t n_queries;  // n_rows * n_group
  std::int32_t n_padded;   // whole strips of them
  Pair* queries;           // [n_padded][width / 2], times scale * log2(e): scores are exponents of 2
  float* sums;             // [n_padded][width], unnormalised outputs
  float* high;             // [n_padded] running maximum of the row's scores
  float* weight;           // [n_padded][16] running sums of 2^(score - high), by lane
  VisibleRange* ranges;    // [n_padded]
  Pair* keys;              // [kBlockKeys / 16][width / 2][16]
  Pair* values;            // [width / 16][kBlockKeys / 2][16]
  float* scores;           // [kMaxStripRows][kScoreStride], then the weights as pairs
};

State make_state(const AttentionShape& shape, std::int32_t n_rows, std::int32_t strip, std::span<std::byte> memory) {
  State s{};
  s.width = round_up(shape.head_dim, kTerms);
  s.n_queries = n_rows * shape.n_group;
  s.n_padded = round_up(s.n_queries, strip);
  const auto padded = static_cast<std::size_t>(s.n_padded);
  const auto width = static_cast<std::size_t>(s.width);
  Scratch scratch(memory);
  s.queries = scratch.take<Pair>(padded * width / 2);
  s.sums = scratch.take<float>(padded * width);
  s.high = scratch.take<float>(padded);
  s.weight = scratch.take<float>(padded * 16);
  s.ranges = scratch.take<VisibleRange>(padded);
  s.keys = scratch.take<Pair>(kBlockKeys * width / 2);
  s.values = scratch.take<Pair>(kBlockKeys / 2 * width);
  s.scores = scratch.take<float>(kMaxStripRows * kScoreStride);
  std::fill_n(s.sums, padded * width, 0.0F);
  std::fill_n(s.high, padded, -HUGE_VALF);
  std::fill_n(s.weight, padded * 16, 0.0F);
  return s;
}

// Fills queries and ranges. Rows behind the last repeat its range with a query of zeros.
void pack_queries(const AttentionShape& shape, const QueryRows& rows, const VisibleRange* ranges, const State& s) {
  const __m512 factor = _mm512_set1_ps(shape.scale * kLog2E);
  for (std::int32_t index = 0; index < s.n_padded; ++index) {
    const std::int32_t query = std::min(index, s.n_queries - 1);
    s.ranges[index] = ranges[query / shape.n_group];
    Pair* out = s.queries + static_cast<std::int64_t>(index) * s.width / 2;
    const float* q = rows.q + query / shape.n_group * rows.row_stride +
                     static_cast<std::int64_t>(query % shape.n_group) * shape.head_dim;
    for (int c = 0; c < s.width; c += 16) {
      const __mmask16 mask = index < s.n_queries && c < shape.head_dim ? 0xFFFF : 0;
      const __m512 scaled = _mm512_mul_ps(factor, _mm512_maskz_loadu_ps(mask, q + c));
      _mm256_store_si256(reinterpret_cast<__m256i*>(out + c / 2),
                         reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(scaled)));
    }
  }
}

// AMX. Tiles 0 to 3 hold 2 x 2 tiles of sums, 4 and 5 rows of the left operand, 6 and 7 columns of the right one.
struct TileConfig {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t bytes_per_row[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfig) == 64);

// A product of a strip's rows and some columns: out (+)= left x right over its pairs [first_pair, last_pair), multiples
// of 16, for columns [first_column, last_column), multiples of 32.
struct Product {
  const Pair* left;  // [strip's rows][left_stride]
  std::ptrdiff_t left_stride;
  const Pair* right;  // [columns / 16][right_pairs][16]
  std::ptrdiff_t right_pairs;
  std::int32_t first_pair, last_pair;
  std::int32_t first_column, last_column;
  float* out;  // [strip's rows][out_stride]
  std::ptrdiff_t out_stride;
};

// Tiles 0 to 3 hold 2 x 2 tiles of sums, 4 and 5 rows of the left operand, 6 and 7 columns of the right one.
template <bool kAdd>
void multiply_amx(const Product& p) {
  const std::size_t left_bytes = static_cast<std::size_t>(p.left_stride) * sizeof(Pair);
  const std::size_t out_bytes = static_cast<std::size_t>(p.out_stride) * sizeof(float);
  const std::ptrdiff_t group_pairs = p.right_pairs * kColumns;
  for (std::int32_t column = p.first_column; column < p.last_column; column += 32) {
    float* out = p.out + column;
    if constexpr (kAdd) {
      _tile_loadd(0, out, out_bytes);
      _tile_loadd(1, out + 16, out_bytes);
      _tile_loadd(2, out + 16 * p.out_stride, out_bytes);
      _tile_loadd(3, out + 16 * p.out_stride + 16, out_bytes);
    } else {
      _tile_zero(0);
      _tile_zero(1);
      _tile_zero(2);
      _tile_zero(3);
    }
    const Pair* left = p.left + p.first_pair;
    const Pair* right = p.right + column / kColumns * group_pairs + p.first_pair * kColumns;
    for (std::int32_t pair = p.first_pair; pair < p.last_pair; pair += 16, left += 16, right += 16 * kColumns) {
      _tile_loadd(4, left, left_bytes);
      _tile_loadd(6, right, kColumns * sizeof(Pair));
      _tile_loadd(7, right + group_pairs, kColumns * sizeof(Pair));
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(1, 4, 7);
      _tile_loadd(5, left + 16 * p.left_stride, left_bytes);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, out, out_bytes);
    _tile_stored(1, out + 16, out_bytes);
    _tile_stored(2, out + 16 * p.out_stride, out_bytes);
    _tile_stored(3, out + 16 * p.out_stride + 16, out_bytes);
  }
}

// AVX512-BF16. out [6][out_stride] (+)= rows [6][row_stride] of n_pairs pairs x kVecs groups of columns, group_pairs
// apart.
template <int kVecs, bool kAdd>
inline void multiply_registers(const Pair* rows, std::ptrdiff_t row_stride, const Pair* columns,
                               std::ptrdiff_t group_pairs, std::int32_t n_pairs, float* out,
                               std::ptrdiff_t out_stride) {
  __m512 sums[6][kVecs];
#pragma GCC unroll 6
  for (int r = 0; r < 6; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) {
      sums[r][v] = kAdd ? _mm512_load_ps(out + r * out_stride + 16 * v) : _mm512_setzero_ps();
    }
  }
  for (std::int32_t i = 0; i < n_pairs; ++i, columns += kColumns) {
    __m512i column[kVecs];
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) column[v] = _mm512_load_si512(columns + v * group_pairs);
#pragma GCC unroll 6
    for (int r = 0; r < 6; ++r) {
      const __m512i row = _mm512_set1_epi32(static_cast<int>(rows[r * row_stride + i]));
#pragma GCC unroll 4
      for (int v = 0; v < kVecs; ++v) {
        sums[r][v] =
            _mm512_dpbf16_ps(sums[r][v], reinterpret_cast<__m512bh>(row), reinterpret_cast<__m512bh>(column[v]));
      }
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < 6; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) _mm512_store_ps(out + r * out_stride + 16 * v, sums[r][v]);
  }
}

template <bool kAdd>
void multiply_avx512(const Product& p) {
  const std::ptrdiff_t group_pairs = p.right_pairs * kColumns;
  const std::int32_t n_pairs = p.last_pair - p.first_pair;
  for (std::int32_t column = p.first_column; column < p.last_column;) {
    const Pair* columns = p.right + column / kColumns * group_pairs + p.first_pair * kColumns;
    const bool wide = column + 64 <= p.last_column;
    // The columns stay in the first-level cache while the rows pass.
    for (int r = 0; r < kStripRows<Bf16Unit::kAvx512>; r += 6) {
      const Pair* rows = p.left + r * p.left_stride + p.first_pair;
      float* out = p.out + r * p.out_stride + column;
      if (wide) {
        multiply_registers<4, kAdd>(rows, p.left_stride, columns, group_pairs, n_pairs, out, p.out_stride);
      } else {
        multiply_registers<2, kAdd>(rows, p.left_stride, columns, group_pairs, n_pairs, out, p.out_stride);
      }
    }
    column += wide ? 64 : 32;
  }
}

template <Bf16Unit kUnit, bool kAdd>
inline void multiply(const Product& p) {
  if constexpr (kUnit == Bf16Unit::kAmx) {
    multiply_amx<kAdd>(p);
  } else {
    multiply_avx512<kAdd>(p);
  }
}

// One row's scores [n], n a multiple of 32, become weights 2^(score - maximum), in pairs at the beginning of the same
// memory; brings high, weight and sums to the maximum.
inline void soften_row(float* scores, std::int32_t n, int width, float* high, float* weight, float* sums) {
  __m512 top0 = _mm512_load_ps(scores);
  __m512 top1 = _mm512_load_ps(scores + 16);
  for (std::int32_t i = 32; i < n; i += 32) {
    top0 = _mm512_max_ps(top0, _mm512_load_ps(scores + i));
    top1 = _mm512_max_ps(top1, _mm512_load_ps(scores + i + 16));
  }
  float top = _mm512_reduce_max_ps(_mm512_max_ps(top0, top1));
  if (top > FLT_MAX) {  // products beyond float32 take all the weight
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

// A strip that begins at query row `first_query` against the packed block of entries [block, block + n).
template <Bf16Unit kUnit>
void attend_strip(const State& s, std::int32_t first_query, std::int32_t block, std::int32_t n) {
  constexpr std::int32_t kRows = kStripRows<kUnit>;
  const VisibleRange* ranges = s.ranges + first_query;
  // Later rows see no less at the end, and no more at the beginning.
  const std::int32_t first = std::max(ranges[0].first - block, 0);
  const std::int32_t last = std::min(ranges[kRows - 1].last - block, n);
  if (first >= last) return;
  const std::int32_t begin = first / kTerms * kTerms;
  const std::int32_t end = round_up(last, kTerms);
  const std::int64_t at = static_cast<std::int64_t>(first_query) * s.width;
  multiply<kUnit, false>({.left = s.queries + at / 2,
                          .left_stride = s.width / 2,
                          .right = s.keys,
                          .right_pairs = s.width / 2,
                          .first_pair = 0,
                          .last_pair = s.width / 2,
                          .first_column = begin,
                          .last_column = end,
                          .out = s.scores - begin,
                          .out_stride = kScoreStride});
  for (std::int32_t r = 0; r < kRows; ++r) {
    float* scores = s.scores + r * kScoreStride;
    const std::int32_t row = first_query + r;
    if (ranges[r].first - block > begin || ranges[r].last - block < end) {
      std::fill(scores, scores + std::clamp(ranges[r].first - block, begin, end) - begin, -HUGE_VALF);
      std::fill(scores + std::clamp(ranges[r].last - block, begin, end) - begin, scores + end - begin, -HUGE_VALF);
    }
    soften_row(scores, end - begin, s.width, s.high + row, s.weight + row * 16, s.sums + at + r * s.width);
  }
  multiply<kUnit, true>({.left = reinterpret_cast<const Pair*>(s.scores) - begin / 2,
                         .left_stride = kScoreStride,
                         .right = s.values,
                         .right_pairs = kBlockKeys / 2,
                         .first_pair = begin / 2,
                         .last_pair = end / 2,
                         .first_column = 0,
                         .last_column = s.width,
                         .out = s.sums + at,
                         .out_stride = s.width});
}

void write_outputs(const AttentionShape& shape, const State& s, const CausalOutput& output) {
  for (std::int32_t index = 0; index < s.n_queries; ++index) {
    const std::int32_t r = index / shape.n_group;
    const std::int32_t g = index % shape.n_group;
    const float weight = _mm512_reduce_add_ps(_mm512_load_ps(s.weight + index * 16));
    const __m512 factor = _mm512_set1_ps(weight == 0.0F ? 0.0F : 1.0F / weight);  // a row that sees nothing gives 0
    const float* sums = s.sums + static_cast<std::int64_t>(index) * s.width;
    float* out = output.out + r * output.row_stride + static_cast<std::int64_t>(g) * shape.head_dim;
    for (int c = 0; c < shape.head_dim; c += 16) {
      _mm512_storeu_ps(out + c, _mm512_mul_ps(factor, _mm512_load_ps(sums + c)));
    }
    if (output.log_sum_exp) {
      const double lse = static_cast<double>(s.high[index]) * kLn2 + std::log(static_cast<double>(weight));
      output.log_sum_exp[static_cast<std::int64_t>(r) * shape.n_group + g] =
          weight == 0.0F ? -HUGE_VALF : static_cast<float>(lse);
    }
  }
}

// At most kCausalBlockRows rows.
template <Bf16Unit kUnit>
void attend_rows(const AttentionShape& shape, const HeadEntries& entries, const QueryRows& rows,
                 const CausalOutput& output, std::span<std::byte> scratch) {
  std::array<VisibleRange, kCausalBlockRows> ranges;
  visible_ranges(shape, entries, rows, ranges.data());
  const State s = make_state(shape, rows.n_rows, kStripRows<kUnit>, scratch);
  pack_queries(shape, rows, ranges.data(), s);
  const std::int32_t last = ranges[static_cast<std::size_t>(rows.n_rows - 1)].last;
  RunCursor key_cursor(entries);
  RunCursor value_cursor(entries);
  for (std::int32_t block = ranges[0].first; block < last; block += kBlockKeys) {
    const std::int32_t n = std::min(kBlockKeys, last - block);
    pack_keys(shape, key_cursor, block, n, s.width, s.keys);
    pack_values(shape, value_cursor, block, n, s.width, kBlockKeys, s.values);
    for (std::int32_t query = 0; query < s.n_padded; query += kStripRows<kUnit>) {
      attend_strip<kUnit>(s, query, block, n);
    }
  }
  write_outputs(shape, s, output);
}

// Numbers below float32's normal ones, whose arithmetic is slow, count as zero while one lives.
class FlushToZero {
 public:
  FlushToZero() { _mm_setcsr(saved_ | 0x8040U); }
  ~FlushToZero() { _mm_setcsr(saved_); }
  FlushToZero(const FlushToZero&) = delete;
  FlushToZero& operator=(const FlushToZero&) = delete;

 private:
  unsigned saved_ = _mm_getcsr();
};

}  // namespace

bool prefers_bf16_attention(const AttentionShape& shape, const QueryRows& rows) {
  constexpr std::int32_t kMinRows = 8;
  return current_bf16_unit() != Bf16Unit::kNone && shape.key_type != EntryType::kF32 &&
         shape.value_type != EntryType::kF32 && rows.n_rows >= kMinRows;
}

std::size_t bf16_attention_scratch_bytes(const AttentionShape& shape) {
  const auto padded = static_cast<std::size_t>(kCausalBlockRows * shape.n_group + kMaxStripRows);
  const auto width = static_cast<std::size_t>(round_up(shape.head_dim, kTerms));
  return Scratch::bytes<Pair>(padded * width / 2) + Scratch::bytes<float>(padded * width) +
         Scratch::bytes<float>(padded) + Scratch::bytes<float>(padded * 16) + Scratch::bytes<VisibleRange>(padded) +
         2 * Scratch::bytes<Pair>(kBlockKeys / 2 * width) + Scratch::bytes<float>(kMaxStripRows * kScoreStride);
}

void bf16_attention(Bf16Unit unit, const AttentionShape& shape, const HeadEntries& entries, const QueryRows& rows,
                    const CausalOutput& output, std::span<std::byte> scratch) {
  const FlushToZero flush;
  if (unit != Bf16Unit::kAmx) return attend_rows<Bf16Unit::kAvx512>(shape, entries, rows, output, scratch);
  const TileConfig config;
  _tile_loadconfig(&config);
  attend_rows<Bf16Unit::kAmx>(shape, entries, rows, output, scratch);
  _tile_release();
}

}  // namespace winnow::kernels

HWY_POP_ATTRIBUTES

#else  // !HWY_ARCH_X86_64

namespace winnow::kernels {

bool prefers_bf16_attention(const AttentionShape&, const QueryRows&) { return false; }
std::size_t bf16_attention_scratch_bytes(const AttentionShape&) { return 0; }
void bf16_attention(Bf16Unit, const AttentionShape&, const HeadEntries&, const QueryRows&, const CausalOutput&,
                    std::span<std::byte>) {}

}  // namespace winnow::kernels
#endif
