// Packed operands and register tiles: scores of many query rows against a block of keys as a blocked matrix product.
#if defined(WINNOW_KERNELS_PACKING_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WINNOW_KERNELS_PACKING_INL_H_
#undef WINNOW_KERNELS_PACKING_INL_H_
#else
#define WINNOW_KERNELS_PACKING_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "kernels/load-inl.h"
#include "kernels/run_cursor.h"
#include "kernels/tiling.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Vectors per row of a register tile: AVX-512 and Arm have 32 registers, the others 16. (A panel holds
// four keys or more; without vectors that takes 4 too.)
#if HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM || HWY_TARGET == HWY_SCALAR
inline constexpr int kTileVecs = 4;
#else
inline constexpr int kTileVecs = 2;
#endif
// Columns (keys) of a packed panel.
inline constexpr int kPanel = kTileVecs * kLanes;
static_assert(kKeyBlock % kPanel == 0 && kPanel % 4 == 0);

// Query row `index` of a packed block: packed is [n_tiles][head_dim][kTileRows].
inline void pack_query(const float* q, float scale, int head_dim, std::int32_t index, float* packed) {
  float* dst = packed + static_cast<std::int64_t>(index / kTileRows) * head_dim * kTileRows + index % kTileRows;
  for (int i = 0; i < head_dim; ++i) dst[i * kTileRows] = q[i] * scale;
}

// Fills the tile rows behind the last query row, whose results nobody reads.
inline void pack_padding(std::int32_t n_rows, int head_dim, float* packed) {
  for (std::int32_t index = n_rows; index % kTileRows != 0; ++index) {
    float* dst = packed + static_cast<std::int64_t>(index / kTileRows) * head_dim * kTileRows + index % kTileRows;
    for (int i = 0; i < head_dim; ++i) dst[i * kTileRows] = 0.0F;
  }
}

// rows: [4][stride] -> dst: [n][kPanel], of which 4 columns are written.
HWY_INLINE void transpose_four(const float* rows, int stride, int n, float* dst) {
#if HWY_TARGET == HWY_SCALAR
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < 4; ++j) dst[i * kPanel + j] = rows[j * stride + i];
  }
#else
  const hn::CappedTag<float, 4> d4;
  const hn::RepartitionToWide<decltype(d4)> d2;
  for (int i = 0; i < n; i += 4) {
    const auto r0 = hn::Load(d4, rows + i);
    const auto r1 = hn::Load(d4, rows + stride + i);
    const auto r2 = hn::Load(d4, rows + 2 * stride + i);
    const auto r3 = hn::Load(d4, rows + 3 * stride + i);
    const auto low01 = hn::BitCast(d2, hn::InterleaveLower(d4, r0, r1));
    const auto low23 = hn::BitCast(d2, hn::InterleaveLower(d4, r2, r3));
    const auto high01 = hn::BitCast(d2, hn::InterleaveUpper(d4, r0, r1));
    const auto high23 = hn::BitCast(d2, hn::InterleaveUpper(d4, r2, r3));
    float* out = dst + i * kPanel;
    hn::Store(hn::BitCast(d4, hn::InterleaveLower(d2, low01, low23)), d4, out);
    hn::Store(hn::BitCast(d4, hn::InterleaveUpper(d2, low01, low23)), d4, out + kPanel);
    hn::Store(hn::BitCast(d4, hn::InterleaveLower(d2, high01, high23)), d4, out + 2 * kPanel);
    hn::Store(hn::BitCast(d4, hn::InterleaveUpper(d2, high01, high23)), d4, out + 3 * kPanel);
  }
#endif
}

// Keys of entries [first, first + n), n <= kKeyBlock, as panels [round_up(n, kPanel) / kPanel][head_dim][kPanel]; the
// columns behind the last key are zero.
HWY_INLINE void pack_keys(const AttentionShape& shape, RunCursor& cursor, std::int32_t first, std::int32_t n,
                          float* panels) {
  const int d = shape.head_dim;
  const std::size_t stride = row_bytes(shape.key_type, d);
  alignas(64) float rows[4 * kMaxHeadDim];
  const std::int32_t end = round_up(n, kPanel);
  RunCursor::Piece piece{nullptr, 0, 0};
  for (std::int32_t key = 0; key < end; key += 4) {
    for (std::int32_t j = 0; j < 4; ++j) {
      float* row = rows + j * d;
      if (key + j >= n) {
        std::fill_n(row, d, 0.0F);
        continue;
      }
      if (piece.count == 0) piece = cursor.seek(first + key + j);
      expand_row(shape.key_type, piece.run->keys + static_cast<std::size_t>(piece.offset) * stride, row, d);
      ++piece.offset;
      --piece.count;
    }
    transpose_four(rows, d, d, panels + static_cast<std::int64_t>(key / kPanel) * d * kPanel + key % kPanel);
  }
}

// Values of entries [first, first + n) as float32 rows [n][head_dim].
HWY_INLINE void unpack_values(const AttentionShape& shape, RunCursor& cursor, std::int32_t first, std::int32_t n,
                              float* values) {
  const int d = shape.head_dim;
  const std::size_t stride = row_bytes(shape.value_type, d);
  for (std::int32_t done = 0; done < n;) {
    const RunCursor::Piece piece = cursor.seek(first + done);
    const std::int32_t count = std::min(piece.count, n - done);
    const std::byte* src = piece.run->values + static_cast<std::size_t>(piece.offset) * stride;
    for (std::int32_t i = 0; i < count; ++i, src += stride) {
      expand_row(shape.value_type, src, values + static_cast<std::int64_t>(done + i) * d, d);
    }
    done += count;
  }
}

// out [kTileRows][out_stride] = a^T b for a: [n][kTileRows], b: [n][kPanel]; kPanel columns of out are written.
HWY_INLINE void multiply_tile(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, int n, float* HWY_RESTRICT out,
                              std::int64_t out_stride) {
  const F d;
  VF sums[kTileRows][kTileVecs];
#pragma GCC unroll 8
  for (int r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kTileVecs; ++v) sums[r][v] = hn::Zero(d);
  }
  for (int i = 0; i < n; ++i, a += kTileRows, b += kPanel) {
    VF columns[kTileVecs];
#pragma GCC unroll 8
    for (int v = 0; v < kTileVecs; ++v) columns[v] = hn::Load(d, b + v * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < kTileRows; ++r) {
      const VF row = hn::Set(d, a[r]);
#pragma GCC unroll 8
      for (int v = 0; v < kTileVecs; ++v) sums[r][v] = hn::MulAdd(row, columns[v], sums[r][v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kTileVecs; ++v) hn::Store(sums[r][v], d, out + r * out_stride + v * kLanes);
  }
}

// Scores of `n_tiles` tiles of packed queries against columns [first, last) of a packed block (rounded outwards to
// panels): scores [n_tiles * kTileRows][kKeyBlock]. The panel stays in the first-level cache while the tiles pass.
HWY_INLINE void score_tiles(const float* queries, std::int32_t n_tiles, int head_dim, const float* panels,
                            std::int32_t first, std::int32_t last, float* scores) {
  for (std::int32_t column = first / kPanel * kPanel; column < last; column += kPanel) {
    const float* panel = panels + static_cast<std::int64_t>(column) * head_dim;
    for (std::int32_t tile = 0; tile < n_tiles; ++tile) {
      multiply_tile(queries + static_cast<std::int64_t>(tile) * kTileRows * head_dim, panel, head_dim,
                    scores + static_cast<std::int64_t>(tile) * kTileRows * kKeyBlock + column, kKeyBlock);
    }
  }
}

// Hides the columns of scores [kKeyBlock] that are outside [first, last), up to the end of the vectors that cover
// columns [0, end).
inline void hide_columns(std::int32_t first, std::int32_t last, std::int32_t end, float* scores) {
  constexpr float kHidden = -HUGE_VALF;
  end = round_up(end, kLanes);
  std::fill(scores, scores + std::clamp(first, 0, end), kHidden);
  std::fill(scores + std::clamp(last, 0, end), scores + end, kHidden);
}

// The greatest of scores [first, last), both multiples of kLanes, at most FLT_MAX; -inf if all are hidden.
HWY_INLINE float greatest(const float* scores, std::int32_t first, std::int32_t last) {
  const F d;
  VF high = hn::Set(d, -HUGE_VALF);
  for (std::int32_t i = first; i < last; i += kLanes) high = hn::Max(high, hn::Load(d, scores + i));
  return std::min(hn::GetLane(hn::MaxOfLanes(d, high)), FLT_MAX);
}

}  // namespace HWY_NAMESPACE
}  // namespace winnow::kernels
HWY_AFTER_NAMESPACE();

#endif
