#include "kernels/statistics/bf16_split_scores.h"

#include <hwy/base.h>

#include <algorithm>
#include <cmath>

#include "kernels/entries/rows.h"
#include "kernels/simd/isa.h"
#include "kernels/simd/tiling.h"

#if HWY_ARCH_X86_64

#include "kernels/simd/bf16_begin-inl.h"
#include "kernels/simd/bf16_products-inl.h"

namespace winnow::kernels {
namespace {

// Writes a packed row, which is twice `width` wide: the numbers rounded to bfloat16, then the remainders rounded to
// bfloat16.
void split_row(const float* row, int head_dim, int width, std::uint16_t* out) {
  for (int c = 0; c < width; c += 16) {
    const __mmask16 inside = c < head_dim ? 0xFFFF : 0;  // head_dim is a multiple of 16
    const __m512 numbers = _mm512_maskz_loadu_ps(inside, row + c);
    const __m256i high = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(numbers));
    const __m512 rounded = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(high), 16));
    const __m256i low = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(_mm512_sub_ps(numbers, rounded)));
    _mm256_store_si256(reinterpret_cast<__m256i*>(out + c), high);
    _mm256_store_si256(reinterpret_cast<__m256i*>(out + width + c), low);
  }
}

// Packs the keys of entries [first, first + n), with zeros after the last up to a multiple of kSplitStrip: [keys /
// 16][width pairs][16].
void pack_split_keys(const AttentionShape& shape, RunCursor& cursor, std::int32_t first, std::int32_t n, int width,
                     Pair* out) {
  const auto split = [&](const EntryRun& run, std::int32_t i, std::uint16_t* packed) {
    alignas(64) float row[kMaxHeadDim];
    load_entry(shape, run, RowKind::kKey, i, row);
    split_row(row, shape.key_dim, width, packed);
  };
  const auto take = [&](std::int32_t /*key*/, const std::uint16_t* rows) {
    for (int group = 0; group < kSplitStrip; group += kColumns, rows += std::ptrdiff_t{kColumns} * 2 * width) {
      for (int i = 0; i < width; i += 16, out += 16 * kColumns) {
        transpose_pairs(reinterpret_cast<const Pair*>(rows) + i, width, out);
      }
    }
  };
  convert_rows<kSplitStrip, 2 * kMaxHeadDim>(cursor, first, n, 2 * width, split, take);
}

}  // namespace

bool prefers_split_scores(const AttentionShape& shape) {
  return current_bf16_unit() == Bf16Unit::kAmx && shape.key_type != EntryType::kF32 && shape.key_dim % 16 == 0;
}

std::size_t split_rows_bytes(int head_dim, std::int32_t n_rows) {
  return static_cast<std::size_t>(n_rows) * static_cast<std::size_t>(round_up(head_dim, kTerms)) * sizeof(Pair);
}

void pack_split_queries(const float* queries, int head_dim, std::int32_t n_rows, std::byte* packed) {
  const int width = round_up(head_dim, kTerms);
  auto* out = reinterpret_cast<std::uint16_t*>(packed);
  for (std::int32_t i = 0; i < n_rows; ++i, queries += head_dim, out += 2 * width) {
    split_row(queries, head_dim, width, out);
  }
}

void split_scores(const AttentionShape& shape, RunCursor& cursor, std::int32_t first, std::int32_t n,
                  const std::byte* queries, std::int32_t n_rows, std::byte* keys, float* scores,
                  std::ptrdiff_t stride) {
  const int width = round_up(shape.key_dim, kTerms);
  auto* packed_keys = reinterpret_cast<Pair*>(keys);
  pack_split_keys(shape, cursor, first, n, width, packed_keys);

  const UnitInUse in_use(Bf16Unit::kAmx);
  const std::size_t query_bytes = static_cast<std::size_t>(width) * sizeof(Pair);
  const std::ptrdiff_t group_pairs = std::ptrdiff_t{width} * kColumns;
  const auto multiply = [&](const Pair* left, const Pair* right) {
    for (int pair = 0; pair < width / 2; pair += 16) {
      multiply_tiles(left + pair, query_bytes, right + std::ptrdiff_t{pair} * kColumns, group_pairs);
    }
  };
  // A pair of key groups stays in the first-level cache while the rows pass.
  for (std::int32_t column = 0; column < n; column += 2 * kColumns) {
    const Pair* key_high = packed_keys + column / kColumns * group_pairs;
    const Pair* key_low = key_high + group_pairs / 2;
    for (std::int32_t row = 0; row < n_rows; row += kSplitStrip) {
      const Pair* query_high = reinterpret_cast<const Pair*>(queries) + std::ptrdiff_t{row} * width;
      const Pair* query_low = query_high + width / 2;
      zero_sums();
      multiply(query_low, key_high);
      multiply(query_high, key_low);
      multiply(query_high, key_high);
      store_sums(scores + row * stride + column, static_cast<std::size_t>(stride));
    }
  }
}

}  // namespace winnow::kernels

HWY_POP_ATTRIBUTES

#else  // !HWY_ARCH_X86_64

namespace winnow::kernels {

bool prefers_split_scores(const AttentionShape&) { return false; }
std::size_t split_rows_bytes(int, std::int32_t) { return 0; }
void pack_split_queries(const float*, int, std::int32_t, std::byte*) {}
void split_scores(const AttentionShape&, RunCursor&, std::int32_t, std::int32_t, const std::byte*, std::int32_t,
                  std::byte*, float*, std::ptrdiff_t) {}

}  // namespace winnow::kernels
#endif
