// CriticalKV's value term by products of bfloat16: W_O's slice of a query head is packed once for all entries of a
// call.
#include <hwy/aligned_allocator.h>
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

inline constexpr int kColumnBlock = 64;  // columns of the projection that are reduced together

// Packs w [head_dim][n_embd] as [columns / 16][width / 2][16], with zeros after the last row and column.
void pack_projection(const float* w, int head_dim, int n_embd, int width, int n_columns, Pair* out) {
  for (int column = 0; column < n_columns; column += kColumns) {
    const int n_inside = std::clamp(n_embd - column, 0, kColumns);
    const auto inside = static_cast<__mmask16>((1U << n_inside) - 1U);
    for (int i = 0; i < width; i += 2, out += kColumns) {
      const auto row = [&](int r) {
        return _mm512_maskz_loadu_ps(r < head_dim ? inside : __mmask16{0}, w + std::int64_t{r} * n_embd + column);
      };
      const auto first = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(row(i)));
      const auto second = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(row(i + 1)));
      _mm512_store_si512(
          out, _mm512_or_si512(_mm512_cvtepu16_epi32(first), _mm512_slli_epi32(_mm512_cvtepu16_epi32(second), 16)));
    }
  }
}

template <Bf16Unit kUnit>
void add_norms(const AttentionShape& shape, const HeadEntries& entries, const float* w_o, int n_embd, float* out) {
  constexpr std::int32_t kStrip = kStripRows<kUnit>;
  const int width = round_up(shape.value_dim, kTerms);
  const int n_columns = round_up(n_embd, kColumnBlock);
  const auto n_pairs = static_cast<std::size_t>(width / 2);
  const std::int32_t n_padded = round_up(entries.n_entries, kMaxStripRows) + kMaxStripRows;
  const auto values = hwy::AllocateAligned<Pair>(static_cast<std::size_t>(n_padded) * n_pairs);  // rows
  const auto weights = hwy::AllocateAligned<Pair>(static_cast<std::size_t>(n_columns) * n_pairs);
  std::fill_n(values.get(), static_cast<std::size_t>(n_padded) * n_pairs, Pair{0});
  RunCursor cursor(entries);
  round_values<kMaxStripRows>(shape, cursor, 0, entries.n_entries, width,
                              [&](std::int32_t at, const std::uint16_t* rows) {
                                std::copy_n(reinterpret_cast<const Pair*>(rows), kMaxStripRows * n_pairs,
                                            values.get() + static_cast<std::size_t>(at) * n_pairs);
                              });
  std::fill_n(out, entries.n_entries, 0.0F);
  alignas(64) float products[kMaxStripRows * kColumnBlock];
  for (int g = 0; g < shape.n_group; ++g) {
    pack_projection(w_o + std::int64_t{g} * shape.value_dim * n_embd, shape.value_dim, n_embd, width, n_columns,
                    weights.get());
    for (std::int32_t first = 0; first < entries.n_entries; first += kStrip) {
      __m512 sums[kStrip];
      std::fill_n(sums, kStrip, _mm512_setzero_ps());
      for (int column = 0; column < n_columns; column += kColumnBlock) {
        multiply<kUnit, false>({.left = values.get() + static_cast<std::size_t>(first) * n_pairs,
                                .left_stride = width / 2,
                                .right = weights.get(),
                                .right_pairs = width / 2,
                                .first_pair = 0,
                                .last_pair = width / 2,
                                .first_column = column,
                                .last_column = column + kColumnBlock,
                                .out = products - column,
                                .out_stride = kColumnBlock});
        for (std::int32_t r = 0; r < kStrip; ++r) {
          const float* row = products + r * kColumnBlock;
          const auto size_of = [&](int c) { return _mm512_abs_ps(_mm512_load_ps(row + c)); };
          sums[r] = _mm512_add_ps(
              sums[r], _mm512_add_ps(_mm512_add_ps(size_of(0), size_of(16)), _mm512_add_ps(size_of(32), size_of(48))));
        }
      }
      for (std::int32_t r = 0; r < std::min(kStrip, entries.n_entries - first); ++r) {
        out[first + r] += _mm512_reduce_add_ps(sums[r]);
      }
    }
  }
  for (std::int32_t i = 0; i < entries.n_entries; ++i) out[i] /= static_cast<float>(shape.n_group);
}

}  // namespace

bool prefers_bf16_norms(const AttentionShape& shape) {
  return current_bf16_unit() != Bf16Unit::kNone && shape.value_type != EntryType::kF32 && shape.value_dim % 16 == 0;
}

void bf16_projected_norms(Bf16Unit unit, const AttentionShape& shape, const HeadEntries& entries,
                          std::span<const float> w_o, int n_embd, std::span<float> out) {
  const UnitInUse in_use(unit);
  if (unit == Bf16Unit::kAmx) {
    add_norms<Bf16Unit::kAmx>(shape, entries, w_o.data(), n_embd, out.data());
  } else {
    add_norms<Bf16Unit::kAvx512>(shape, entries, w_o.data(), n_embd, out.data());
  }
}

}  // namespace winnow::kernels

HWY_POP_ATTRIBUTES

#else  // !HWY_ARCH_X86_64

namespace winnow::kernels {

bool prefers_bf16_norms(const AttentionShape&) { return false; }
void bf16_projected_norms(Bf16Unit, const AttentionShape&, const HeadEntries&, std::span<const float>, int,
                          std::span<float>) {}

}  // namespace winnow::kernels
#endif
