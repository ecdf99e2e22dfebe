// Products of packed bfloat16 operands, by either unit. Included after bf16_begin-inl.h.
#pragma once

#include "kernels/simd/bf16_tiles-inl.h"

namespace winnow::kernels {
namespace {

inline constexpr std::int32_t kBlockKeys = 256;
// Rows of the score buffer are a line longer than a power of two, so that a column's rows map to different sets of the
// first-level cache.
inline constexpr std::int32_t kScoreStride = kBlockKeys + 16;

// The number of query rows that pass over a block together: two AMX tiles, or four register tiles of six rows.
template <Bf16Unit kUnit>
inline constexpr std::int32_t kStripRows = kUnit == Bf16Unit::kAmx ? 32 : 24;
inline constexpr std::int32_t kMaxStripRows = 32;

// The configuration of AMX. Tiles 0 to 3 hold 2 x 2 tiles of sums, 4 and 5 rows of the left operand, 6 and 7 columns of
// the right one.
struct TileConfig {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t bytes_per_row[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfig) == 64);
// This is not on the stack: gcc 12 believes that only its first bytes are read.
inline constexpr TileConfig kTileConfig;

// A product of a strip's rows and some columns: out (+)= left x right over the pairs [first_pair, last_pair), multiples
// of 16, for the columns [first_column, last_column), multiples of 32.
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

inline void zero_sums() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}

// Load and store the sums: 32 columns of [32][stride].
inline void load_sums(const float* sums, std::size_t stride) {
  const std::size_t bytes = stride * sizeof(float);
  _tile_loadd(0, sums, bytes);
  _tile_loadd(1, sums + 16, bytes);
  _tile_loadd(2, sums + 16 * stride, bytes);
  _tile_loadd(3, sums + 16 * stride + 16, bytes);
}

inline void store_sums(float* sums, std::size_t stride) {
  const std::size_t bytes = stride * sizeof(float);
  _tile_stored(0, sums, bytes);
  _tile_stored(1, sums + 16, bytes);
  _tile_stored(2, sums + 16 * stride, bytes);
  _tile_stored(3, sums + 16 * stride + 16, bytes);
}

// Adds to the sums the product of 32 rows of 16 pairs, left_bytes apart, with two groups of columns, group_pairs apart.
inline void multiply_tiles(const Pair* left, std::size_t left_bytes, const Pair* right, std::ptrdiff_t group_pairs) {
  _tile_loadd(4, left, left_bytes);
  _tile_loadd(6, right, kColumns * sizeof(Pair));
  _tile_loadd(7, right + group_pairs, kColumns * sizeof(Pair));
  _tile_dpbf16ps(0, 4, 6);
  _tile_dpbf16ps(1, 4, 7);
  _tile_loadd(5, reinterpret_cast<const std::byte*>(left) + 16 * left_bytes, left_bytes);
  _tile_dpbf16ps(2, 5, 6);
  _tile_dpbf16ps(3, 5, 7);
}

template <bool kAdd>
void multiply_amx(const Product& p) {
  const std::size_t left_bytes = static_cast<std::size_t>(p.left_stride) * sizeof(Pair);
  const auto out_stride = static_cast<std::size_t>(p.out_stride);
  const std::ptrdiff_t group_pairs = p.right_pairs * kColumns;
  for (std::int32_t column = p.first_column; column < p.last_column; column += 32) {
    if constexpr (kAdd) {
      load_sums(p.out + column, out_stride);
    } else {
      zero_sums();
    }
    const Pair* left = p.left + p.first_pair;
    const Pair* right = p.right + column / kColumns * group_pairs + p.first_pair * kColumns;
    for (std::int32_t pair = p.first_pair; pair < p.last_pair; pair += 16, left += 16, right += 16 * kColumns) {
      multiply_tiles(left, left_bytes, right, group_pairs);
    }
    store_sums(p.out + column, out_stride);
  }
}

// Computes, with AVX512-BF16, out [6][out_stride] (+)= rows [6][row_stride] of n_pairs pairs x kVecs groups of columns,
// group_pairs apart.
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

// Packs a row of float32 times `factor` as pairs, [width / 2]; zeros if `row` is null.
inline void pack_query(const float* row, float factor, int head_dim, int width, Pair* out) {
  if (row == nullptr) {
    std::fill_n(out, width / 2, Pair{0});
    return;
  }
  for (int c = 0; c < width; c += 16) {
    __m512 numbers = _mm512_setzero_ps();
    if (c < head_dim) numbers = _mm512_mul_ps(_mm512_set1_ps(factor), _mm512_loadu_ps(row + c));
    _mm256_store_si256(reinterpret_cast<__m256i*>(out + c / 2), reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(numbers)));
  }
}

// Replaces scores [n], n a multiple of 16, by cap * tanh(score / cap), with an error below 1e-4 * cap.
inline void soft_cap_row(float* scores, std::int32_t n, float cap) {
  const __m512 factor = _mm512_set1_ps(-2.0F * kLog2E / cap);
  const __m512 one = _mm512_set1_ps(1.0F);
  const __m512i sign = _mm512_set1_epi32(INT32_MIN);
  for (std::int32_t i = 0; i < n; i += 16) {
    const __m512 x = _mm512_load_ps(scores + i);
    const __m512 t = exp2_rounded(_mm512_max_ps(_mm512_mul_ps(_mm512_abs_ps(x), factor), _mm512_set1_ps(-127.0F)));
    const __m512 size = _mm512_mul_ps(_mm512_set1_ps(cap), _mm512_div_ps(_mm512_sub_ps(one, t), _mm512_add_ps(one, t)));
    const __m512i bits = _mm512_ternarylogic_epi32(sign, _mm512_castps_si512(x), _mm512_castps_si512(size), 0xCA);
    _mm512_store_ps(scores + i, _mm512_castsi512_ps(bits));
  }
}

// The keys [begin, end) of a block, multiples of kTerms; empty if begin == end.
struct KeyRange {
  std::int32_t begin = 0;
  std::int32_t end = 0;
};

// Computes the scores of a strip of query rows with the part of the packed block of entries [block, block + n) that any
// of the rows sees, and returns this part: scores [strip's rows][kScoreStride], from its first key on; -inf if a row
// does not see an entry.
//   ranges: those of the strip's rows, in ascending order; soft_cap: AttentionSpec's
template <Bf16Unit kUnit>
inline KeyRange score_strip(const Pair* queries, const VisibleRange* ranges, int width, const Pair* keys,
                            std::int32_t block, std::int32_t n, float soft_cap, float* scores) {
  // Later rows see at least as many entries at the end, and at most as many at the beginning.
  const std::int32_t first = std::max(ranges[0].first - block, 0);
  const std::int32_t last = std::min(ranges[kStripRows<kUnit> - 1].last - block, n);
  if (first >= last) return {};
  const KeyRange part{first / kTerms * kTerms, round_up(last, kTerms)};
  multiply<kUnit, false>({.left = queries,
                          .left_stride = width / 2,
                          .right = keys,
                          .right_pairs = width / 2,
                          .first_pair = 0,
                          .last_pair = width / 2,
                          .first_column = part.begin,
                          .last_column = part.end,
                          .out = scores - part.begin,
                          .out_stride = kScoreStride});
  const std::int32_t size = part.end - part.begin;
  for (std::int32_t r = 0; r < kStripRows<kUnit>; ++r, scores += kScoreStride) {
    if (soft_cap != 0) soft_cap_row(scores, size, soft_cap * kLog2E);
    const std::int32_t from = ranges[r].first - block;
    const std::int32_t to = ranges[r].last - block;
    if (from <= part.begin && to >= part.end) continue;
    std::fill(scores, scores + std::clamp(from - part.begin, 0, size), -HUGE_VALF);
    std::fill(scores + std::clamp(to - part.begin, 0, size), scores + size, -HUGE_VALF);
  }
  return part;
}

// Prepares the unit for the calling thread for the object's lifetime. Subnormal float32 numbers, whose arithmetic is
// slow, are treated as zero.
class UnitInUse {
 public:
  explicit UnitInUse(Bf16Unit unit) : unit_(unit), control_(_mm_getcsr()) {
    _mm_setcsr(control_ | 0x8040U);
    if (unit != Bf16Unit::kAmx) return;
    _tile_loadconfig(&kTileConfig);
  }
  ~UnitInUse() {
    if (unit_ == Bf16Unit::kAmx) _tile_release();
    _mm_setcsr(control_);
  }
  UnitInUse(const UnitInUse&) = delete;
  UnitInUse& operator=(const UnitInUse&) = delete;

 private:
  Bf16Unit unit_;
  unsigned control_;
};

}  // namespace
}  // namespace winnow::kernels
