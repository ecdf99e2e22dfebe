// Packed operands and register tiles of the blocked matrix products: the scores of many query rows against a block of
// keys, the weighted sums of values, projections.
#if defined(WINNOW_KERNELS_PACKING_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WINNOW_KERNELS_PACKING_INL_H_
#undef WINNOW_KERNELS_PACKING_INL_H_
#else
#define WINNOW_KERNELS_PACKING_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/entries/load-inl.h"
#include "kernels/entries/run_cursor.h"
#include "kernels/simd/tiling.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The vectors per row of a register tile: AVX-512 and Arm have 32 registers, the others 16. (A panel holds at least
// four keys, so kTileVecs is 4 without vectors, too.)
#if HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM || HWY_TARGET == HWY_SCALAR
inline constexpr int kTileVecs = 4;
#else
inline constexpr int kTileVecs = 2;
#endif
// The number of columns (keys) of a packed panel.
inline constexpr int kPanel = kTileVecs * kLanes;
static_assert(kKeyBlock % kPanel == 0 && kPanel % 4 == 0);

// Copies rows [n][head_dim], times `scale`, and fills the last tile up with zero rows, whose results are not read.
//   row(i): the i-th row; out: [round_up(n, kTileRows)][head_dim]
template <class Row>
HWY_INLINE void copy_rows(std::int32_t n, int head_dim, float scale, const Row& row, float* out) {
  const F d;
  const VF factor = hn::Set(d, scale);
  for (std::int32_t i = 0; i < n; ++i, out += head_dim) {
    const float* from = row(i);
    int c = 0;
    for (; c + kLanes <= head_dim; c += kLanes) hn::StoreU(hn::Mul(factor, hn::LoadU(d, from + c)), d, out + c);
    for (; c < head_dim; ++c) out[c] = scale * from[c];  // a head smaller than a vector
  }
  std::fill_n(out, static_cast<std::int64_t>(round_up(n, kTileRows) - n) * head_dim, 0.0F);
}

// Transposes rows [4][n] into dst [n][width], of which 4 columns are written.
HWY_INLINE void transpose_four(const float* rows, int n, int width, float* dst) {
#if HWY_TARGET == HWY_SCALAR
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < 4; ++j) dst[i * width + j] = rows[j * n + i];
  }
#else
  const hn::CappedTag<float, 4> d4;
  const hn::RepartitionToWide<decltype(d4)> d2;
  for (int i = 0; i < n; i += 4) {
    const auto r0 = hn::Load(d4, rows + i);
    const auto r1 = hn::Load(d4, rows + n + i);
    const auto r2 = hn::Load(d4, rows + 2 * n + i);
    const auto r3 = hn::Load(d4, rows + 3 * n + i);
    const auto low01 = hn::BitCast(d2, hn::InterleaveLower(d4, r0, r1));
    const auto low23 = hn::BitCast(d2, hn::InterleaveLower(d4, r2, r3));
    const auto high01 = hn::BitCast(d2, hn::InterleaveUpper(d4, r0, r1));
    const auto high23 = hn::BitCast(d2, hn::InterleaveUpper(d4, r2, r3));
    float* out = dst + i * width;
    hn::Store(hn::BitCast(d4, hn::InterleaveLower(d2, low01, low23)), d4, out);
    hn::Store(hn::BitCast(d4, hn::InterleaveUpper(d2, low01, low23)), d4, out + width);
    hn::Store(hn::BitCast(d4, hn::InterleaveLower(d2, high01, high23)), d4, out + 2 * width);
    hn::Store(hn::BitCast(d4, hn::InterleaveUpper(d2, high01, high23)), d4, out + 3 * width);
  }
#endif
}

// Adds to keys the origins that were subtracted when they were stored.
class KeyOrigins {
 public:
  // Adds the origin of a key's run to row [n]; null: none.
  HWY_INLINE void add_to(float* row, const std::byte* origin, int n) {
    if (origin == nullptr) return;
    const F d;
    if (origin != loaded_) expand_row(EntryType::kF16, loaded_ = origin, numbers_, n);
    for (int c = 0; c < n; c += kLanes)
      hn::StoreU(hn::Add(hn::LoadU(d, row + c), hn::Load(d, numbers_ + c)), d, row + c);
  }

 private:
  const std::byte* loaded_ = nullptr;
  alignas(64) float numbers_[kMaxHeadDim];
};

// Packs the keys of entries [first, first + n), n <= kKeyBlock, as panels [round_up(n, kPanel) /
// kPanel][key_dim][kPanel]; columns beyond the last key are zero.
HWY_INLINE void pack_keys(const AttentionShape& shape, RunCursor& cursor, std::int32_t first, std::int32_t n,
                          float* panels) {
  const int d = shape.key_dim;
  alignas(64) float rows[4 * kMaxHeadDim];
  const std::int32_t end = round_up(n, kPanel);
  RunCursor::Piece piece{nullptr, 0, 0};
  KeyOrigins origins;
  for (std::int32_t key = 0; key < end; key += 4) {
    for (std::int32_t j = 0; j < 4; ++j) {
      float* row = rows + j * d;
      if (key + j >= n) {
        std::fill_n(row, d, 0.0F);
        continue;
      }
      if (piece.count == 0) piece = cursor.seek(first + key + j);
      expand_row(row_type(*piece.run, RowKind::kKey), row_at(shape, *piece.run, RowKind::kKey, piece.offset), row, d);
      origins.add_to(row, piece.run->origin, d);
      ++piece.offset;
      --piece.count;
    }
    transpose_four(rows, d, kPanel, panels + static_cast<std::int64_t>(key / kPanel) * d * kPanel + key % kPanel);
  }
}

// Dequantises the rows of entries [first, first + n) to float32: [n][key_dim] or [n][value_dim].
template <bool kKeys>
HWY_INLINE void expand_rows(const AttentionShape& shape, RunCursor& cursor, std::int32_t first, std::int32_t n,
                            float* out) {
  constexpr RowKind kKind = kKeys ? RowKind::kKey : RowKind::kValue;
  const int width = kKeys ? shape.key_dim : shape.value_dim;
  KeyOrigins origins;
  for (std::int32_t done = 0; done < n;) {
    const RunCursor::Piece piece = cursor.seek(first + done);
    const std::int32_t count = std::min(piece.count, n - done);
    const EntryType type = row_type(*piece.run, kKind);
    const std::size_t stride = row_bytes(type, width);
    const std::byte* src = row_at(shape, *piece.run, kKind, piece.offset);
    for (std::int32_t i = 0; i < count; ++i, src += stride, out += width) {
      expand_row(type, src, out, width);
      if constexpr (kKeys) origins.add_to(out, piece.run->origin, width);
    }
    done += count;
  }
}

// How the left operand of a register tile is laid out in memory.
enum class Left {
  kByRow,   // row r, term i at a[r * stride + i]
  kByTerm,  // row r, term i at a[i * stride + r]
};

// Adds the products: sums[r][.] += sum over the n terms i of a(r, i) * b[i][.], b: [n][kVecs * kLanes]. The sums stay
// in registers.
template <Left kLeft, int kRows, int kVecs>
HWY_INLINE void multiply_add(const float* HWY_RESTRICT a, std::int64_t stride, const float* HWY_RESTRICT b,
                             std::int32_t n, VF (&sums)[kRows][kVecs]) {
  const F d;
  for (std::int32_t i = 0; i < n; ++i, a += kLeft == Left::kByRow ? 1 : stride, b += kVecs * kLanes) {
    VF columns[kVecs];
#pragma GCC unroll 16
    for (int v = 0; v < kVecs; ++v) columns[v] = hn::Load(d, b + v * kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const VF row = hn::Set(d, a[kLeft == Left::kByRow ? r * stride : r]);
#pragma GCC unroll 16
      for (int v = 0; v < kVecs; ++v) sums[r][v] = hn::MulAdd(row, columns[v], sums[r][v]);
    }
  }
}

// Computes out [kTileRows][out_stride] = rows * columns, for rows [kTileRows][n] and columns [n][kVecs * kLanes].
template <int kVecs>
HWY_INLINE void multiply_tile(const float* HWY_RESTRICT rows, const float* HWY_RESTRICT columns, int n,
                              float* HWY_RESTRICT out, std::int64_t out_stride) {
  const F d;
  VF sums[kTileRows][kVecs];
#pragma GCC unroll 16
  for (int r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < kVecs; ++v) sums[r][v] = hn::Zero(d);
  }
  multiply_add<Left::kByRow>(rows, n, columns, n, sums);
#pragma GCC unroll 16
  for (int r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < kVecs; ++v) hn::Store(sums[r][v], d, out + r * out_stride + v * kLanes);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace winnow::kernels
HWY_AFTER_NAMESPACE();

#endif
