// Packed operands of bfloat16 products, for AVX512-BF16 and AMX. Included after bf16_begin-inl.h; callers check that
// the processor has the instruction set before they call any function here.
//
// A pair is two neighbouring terms of a product in 32 bits, as both instruction sets take them. Left operands are rows
// of pairs. Right ones are stored in groups of 16 columns, [columns / 16][pairs of terms][16]: an AMX tile of 16 pairs
// is 1 KiB of contiguous memory. Keys are columns of pairs along the width; values are pairs along the keys with the
// width as columns. `width` is the rows' size rounded up to a multiple of kTerms, with zeros beyond the size.
#pragma once

namespace winnow::kernels {
namespace {

inline constexpr int kTerms = 32;    // terms that an AMX product takes: 16 pairs
inline constexpr int kColumns = 16;  // columns of a group

using Pair = std::uint32_t;

// Converts a row of a stored type, plus `offset` [head_dim] if it is not null, to bfloat16: [width].
inline void round_row(EntryType type, const std::byte* src, const float* offset, int head_dim, int width,
                      std::uint16_t* out) {
  alignas(64) float row[kMaxHeadDim];
  const bool is_loaded = type == EntryType::kF16 || (type == EntryType::kBF16 && offset == nullptr);
  if (!is_loaded) load_row(type, src, row, head_dim);
  for (int c = 0; c < width; c += 32) {
    const __mmask16 low = c + 16 <= head_dim ? 0xFFFF : 0;  // head_dim is a multiple of 16
    const __mmask16 high = c + 32 <= head_dim ? 0xFFFF : 0;
    const auto* half = reinterpret_cast<const std::uint16_t*>(src) + c;
    __m512i pairs;
    if (type == EntryType::kBF16 && offset == nullptr) {
      pairs = _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_maskz_loadu_epi16(low, half)),
                                 _mm256_maskz_loadu_epi16(high, half + 16), 1);
    } else {
      __m512 a, b;
      if (type == EntryType::kF16) {
        a = _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(low, half));
        b = _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(high, half + 16));
      } else {
        a = _mm512_maskz_loadu_ps(low, row + c);
        b = _mm512_maskz_loadu_ps(high, row + c + 16);
      }
      if (offset != nullptr) {
        a = _mm512_add_ps(a, _mm512_maskz_loadu_ps(low, offset + c));
        b = _mm512_add_ps(b, _mm512_maskz_loadu_ps(high, offset + c + 16));
      }
      pairs = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(b, a));
    }
    _mm512_storeu_si512(out + c, pairs);
  }
}

// Transposes 16 rows of 16 pairs, row_stride apart, to out [16][16].
inline void transpose_pairs(const Pair* rows, std::ptrdiff_t row_stride, Pair* out) {
  __m512i r[16], t[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) r[i] = _mm512_loadu_si512(rows + i * row_stride);
#pragma GCC unroll 16
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
  // r[4 k + j]: column j of each 128-bit lane, of rows 4 k .. 4 k + 3
#pragma GCC unroll 16
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
#pragma GCC unroll 16
  for (int j = 0; j < 4; ++j) {
    const __m512i even_low = _mm512_shuffle_i32x4(r[j], r[4 + j], 0x88);
    const __m512i odd_low = _mm512_shuffle_i32x4(r[j], r[4 + j], 0xDD);
    const __m512i even_high = _mm512_shuffle_i32x4(r[8 + j], r[12 + j], 0x88);
    const __m512i odd_high = _mm512_shuffle_i32x4(r[8 + j], r[12 + j], 0xDD);
    _mm512_store_si512(out + j * 16, _mm512_shuffle_i32x4(even_low, even_high, 0x88));
    _mm512_storeu_si512(out + (4 + j) * 16, _mm512_shuffle_i32x4(odd_low, odd_high, 0x88));
    _mm512_storeu_si512(out + (8 + j) * 16, _mm512_shuffle_i32x4(even_low, even_high, 0xDD));
    _mm512_storeu_si512(out + (12 + j) * 16, _mm512_shuffle_i32x4(odd_low, odd_high, 0xDD));
  }
}

// Converts the stored rows of entries [first, first + n), kRows at a time with zeros after the last, and calls
// take(index of the first, rows [kRows][row_width]).
//   convert(run, index in the run, out [row_width])
template <int kRows, int kMaxWidth, class Convert, class Take>
inline void convert_rows(RunCursor& cursor, std::int32_t first, std::int32_t n, int row_width, const Convert& convert,
                         const Take& take) {
  alignas(64) std::uint16_t rows[kRows * kMaxWidth];
  RunCursor::Piece piece{nullptr, 0, 0};
  for (std::int32_t at = 0; at < n; at += kRows) {
    for (std::int32_t j = 0; j < kRows; ++j) {
      std::uint16_t* row = rows + j * row_width;
      if (at + j >= n) {
        std::fill_n(row, row_width, std::uint16_t{0});
        continue;
      }
      if (piece.count == 0) piece = cursor.seek(first + at + j);
      convert(*piece.run, piece.offset, row);
      ++piece.offset;
      --piece.count;
    }
    take(at, rows);
  }
}

// Calls take() with the values as bfloat16, rows [kRows][width].
template <int kRows, class Take>
inline void round_values(const AttentionShape& shape, RunCursor& cursor, std::int32_t first, std::int32_t n, int width,
                         const Take& take) {
  const auto round = [&](const EntryRun& run, std::int32_t i, std::uint16_t* row) {
    round_row(run.value_type, row_at(shape, run, RowKind::kValue, i), nullptr, shape.value_dim, width, row);
  };
  convert_rows<kRows, kMaxHeadDim>(cursor, first, n, width, round, take);
}

// The origin of a head's keys. If there is one, all keys are rounded with it subtracted: bfloat16 then keeps 8 bits of
// the part that distinguishes them. Scores then lack q.origin, the same for all keys. With a soft cap, which needs
// complete scores, keys are rounded as they are.
class PackedOrigin {
 public:
  PackedOrigin(const AttentionShape& shape, const HeadEntries& entries) {
    const auto run =
        std::find_if(entries.runs.begin(), entries.runs.end(), [](const EntryRun& r) { return r.origin != nullptr; });
    if (run == entries.runs.end()) return;
    dim_ = shape.key_dim;
    is_subtracted_ = shape.spec.soft_cap == 0;
    load_row(EntryType::kF16, run->origin, numbers_, dim_);
    for (int i = 0; i < dim_; ++i) offset_[i] = is_subtracted_ ? -numbers_[i] : numbers_[i];
  }

  // Returns the numbers that are added to keys of a run before they are rounded; null: none.
  const float* offset(const EntryRun& run) const {
    return dim_ > 0 && (run.origin == nullptr) == is_subtracted_ ? offset_ : nullptr;
  }

  // Returns the part that a query's scores lack, in units of scores.
  float lacking(const float* q, float scale) const {
    if (dim_ == 0 || !is_subtracted_) return 0;
    __m512 sum = _mm512_setzero_ps();
    for (int i = 0; i < dim_; i += 16) {
      sum = _mm512_fmadd_ps(_mm512_loadu_ps(q + i), _mm512_load_ps(numbers_ + i), sum);
    }
    return scale * _mm512_reduce_add_ps(sum);
  }

 private:
  int dim_ = 0;  // 0: no origin
  bool is_subtracted_ = false;
  alignas(64) float numbers_[kMaxHeadDim];
  alignas(64) float offset_[kMaxHeadDim];
};

// Packs the keys of entries [first, first + n), with zeros after the last up to a multiple of 16.
inline void pack_keys(const AttentionShape& shape, RunCursor& cursor, const PackedOrigin& origin, std::int32_t first,
                      std::int32_t n, int width, Pair* out) {
  const auto round = [&](const EntryRun& run, std::int32_t i, std::uint16_t* row) {
    round_row(run.key_type, row_at(shape, run, RowKind::kKey, i), origin.offset(run), shape.key_dim, width, row);
  };
  convert_rows<16, kMaxHeadDim>(cursor, first, n, width, round, [&](std::int32_t key, const std::uint16_t* rows) {
    Pair* group = out + std::ptrdiff_t{key} * width / 2;
    for (int i = 0; i < width / 2; i += 16) {
      transpose_pairs(reinterpret_cast<const Pair*>(rows) + i, width / 2, group + i * kColumns);
    }
  });
}

inline __m512i widen(const std::uint16_t* numbers) {
  return _mm512_cvtepu16_epi32(_mm256_load_si256(reinterpret_cast<const __m256i*>(numbers)));
}

// Packs the values of entries [first, first + n), with zeros after the last up to a multiple of kTerms; n_keys: the
// keys of the whole block.
inline void pack_values(const AttentionShape& shape, RunCursor& cursor, std::int32_t first, std::int32_t n, int width,
                        std::int32_t n_keys, Pair* out) {
  round_values<kTerms>(shape, cursor, first, n, width, [&](std::int32_t key, const std::uint16_t* rows) {
    Pair* to = out + std::ptrdiff_t{key} / 2 * kColumns;
    for (int c = 0; c < width; c += kColumns, to += std::ptrdiff_t{n_keys} / 2 * kColumns) {
      for (int j = 0; j < kTerms; j += 2) {
        const std::uint16_t* row = rows + j * width + c;
        const __m512i pairs = _mm512_or_si512(widen(row), _mm512_slli_epi32(widen(row + width), 16));
        _mm512_store_si512(to + j / 2 * kColumns, pairs);
      }
    }
  });
}

// Returns 2^x for x <= 0, and 0 for -inf. The relative error is below 8e-5, 5e-6 on average: small compared with the
// rounding to bfloat16 that follows, and without bias in sums.
inline __m512 exp2_rounded(__m512 x) {
  const __m512 f = _mm512_reduce_ps(x, 1);  // x - floor(x)
  __m512 p = _mm512_set1_ps(7.802452300e-2F);
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(2.260671590e-1F));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(6.958335369e-1F));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(9.999252192e-1F));
  return _mm512_scalef_ps(p, x);  // p * 2^floor(x)
}

}  // namespace
}  // namespace winnow::kernels
