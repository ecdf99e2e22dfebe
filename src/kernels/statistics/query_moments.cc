#include "kernels/simd/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/statistics/query_moments.cc"
#include <hwy/aligned_allocator.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cassert>

#include "kernels/entries/packing-inl.h"
#include "kernels/entries/run_cursor.h"
#include "kernels/simd/tiling.h"
#include "kernels/statistics/query_moments.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The number of rows whose products are summed in float32.
inline constexpr std::int32_t kMomentRows = 64;

void add_query_moments(const float* q, std::int64_t row_stride, std::int32_t n_rows, int head_dim, double* sum,
                       double* outer) {
  const int padded = round_up(head_dim, kTileRows);  // the last tile of rows reads beyond the head
  const auto rows = hwy::AllocateAligned<float>(kMomentRows * static_cast<std::size_t>(padded));
  const auto panel = hwy::AllocateAligned<float>(kMomentRows * std::size_t{kPanel});
  alignas(64) float tile[kTileRows * kPanel];
  const F d;
  for (std::int32_t first = 0; first < n_rows; first += kMomentRows) {
    const std::int32_t n = std::min(kMomentRows, n_rows - first);
    for (std::int32_t r = 0; r < n; ++r) {
      float* row = rows.get() + static_cast<std::int64_t>(r) * padded;
      std::copy_n(q + (first + r) * row_stride, head_dim, row);
      std::fill(row + head_dim, row + padded, 0.0F);
      for (int i = 0; i < head_dim; ++i) sum[i] += static_cast<double>(row[i]);
    }
    for (int column = 0; column < head_dim; column += kPanel) {
      const int width = std::min(kPanel, head_dim - column);
      for (std::int32_t r = 0; r < n; ++r) {
        float* out = panel.get() + r * kPanel;
        std::copy_n(rows.get() + static_cast<std::int64_t>(r) * padded + column, width, out);
        std::fill(out + width, out + kPanel, 0.0F);
      }
      for (int i = 0; i < head_dim; i += kTileRows) {
        VF sums[kTileRows][kTileVecs];
#pragma GCC unroll 16
        for (auto& row : sums) {
#pragma GCC unroll 16
          for (VF& x : row) x = hn::Zero(d);
        }
        multiply_add<Left::kByTerm>(rows.get() + i, padded, panel.get(), n, sums);
#pragma GCC unroll 16
        for (int r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 16
          for (int v = 0; v < kTileVecs; ++v) hn::Store(sums[r][v], d, tile + r * kPanel + v * kLanes);
        }
        for (int r = 0; r < std::min(kTileRows, head_dim - i); ++r) {
          double* out = outer + static_cast<std::int64_t>(i + r) * head_dim + column;
          for (int c = 0; c < width; ++c) out[c] += static_cast<double>(tile[r * kPanel + c]);
        }
      }
    }
  }
}

using D = hn::ScalableTag<double>;
using VD = hn::Vec<D>;
inline constexpr int kDoubles = static_cast<int>(hn::MaxLanes(D()));
inline constexpr int kKeyVecs = kTileVecs;
inline constexpr std::int32_t kKeysAtOnce = kKeyVecs * kDoubles;
inline constexpr int kFormRows = 4;

// Writes k' L k for a block of keys [head_dim][kKeysAtOnce] and a lower triangular L [head_dim][head_dim] to out
// [kKeysAtOnce], and mean' k to dots.
HWY_INLINE void quadratic_forms(const double* keys, int head_dim, const double* lower, const double* mean, double* out,
                                double* dots) {
  const D d;
  VD total[kKeyVecs], dot[kKeyVecs];
#pragma GCC unroll 8
  for (int v = 0; v < kKeyVecs; ++v) total[v] = dot[v] = hn::Zero(d);
  for (int row = 0; row < head_dim; row += kFormRows) {
    VD sums[kFormRows][kKeyVecs];
#pragma GCC unroll 8
    for (auto& sum : sums) {
#pragma GCC unroll 8
      for (VD& x : sum) x = hn::Zero(d);
    }
    // The tile ends at the last column of its longest row; to the right of the other rows' diagonals, `lower` is zero.
    for (int c = 0; c < row + kFormRows; ++c) {
      VD key[kKeyVecs];
#pragma GCC unroll 8
      for (int v = 0; v < kKeyVecs; ++v) key[v] = hn::Load(d, keys + c * kKeysAtOnce + v * kDoubles);
#pragma GCC unroll 8
      for (int r = 0; r < kFormRows; ++r) {
        const VD factor = hn::Set(d, lower[static_cast<std::int64_t>(row + r) * head_dim + c]);
#pragma GCC unroll 8
        for (int v = 0; v < kKeyVecs; ++v) sums[r][v] = hn::MulAdd(factor, key[v], sums[r][v]);
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < kFormRows; ++r) {
      const VD mu = hn::Set(d, mean[row + r]);
#pragma GCC unroll 8
      for (int v = 0; v < kKeyVecs; ++v) {
        const VD key = hn::Load(d, keys + (row + r) * kKeysAtOnce + v * kDoubles);
        total[v] = hn::MulAdd(sums[r][v], key, total[v]);
        dot[v] = hn::MulAdd(mu, key, dot[v]);
      }
    }
  }
#pragma GCC unroll 8
  for (int v = 0; v < kKeyVecs; ++v) {
    hn::Store(total[v], d, out + v * kDoubles);
    hn::Store(dot[v], d, dots + v * kDoubles);
  }
}

void expected_scores(const AttentionShape& shape, const HeadEntries& entries, std::int32_t n_columns,
                     const double* mean, const double* covariance, double* out) {
  const int head_dim = shape.key_dim;
  const auto width = static_cast<std::size_t>(head_dim);
  const auto n_group = static_cast<std::size_t>(shape.n_group);
  // The covariance is symmetric: numbers to the left of the diagonal count twice, and those to the right of it not at
  // all.
  const auto lower = hwy::AllocateAligned<double>(n_group * width * width);
  for (std::size_t g = 0; g < n_group; ++g) {
    for (std::size_t r = 0; r < width; ++r) {
      const std::size_t at = (g * width + r) * width;
      for (std::size_t c = 0; c < width; ++c) {
        lower[at + c] = c > r ? 0.0 : covariance[at + c] * (c < r ? 2.0 : 1.0);
      }
    }
  }
  const auto rows = hwy::AllocateAligned<float>(kKeysAtOnce * width);
  const auto keys = hwy::AllocateAligned<double>(kKeysAtOnce * width);
  alignas(64) double squares[kKeysAtOnce];
  alignas(64) double dots[kKeysAtOnce];
  const double scale = static_cast<double>(shape.spec.scale);
  RunCursor cursor(entries);
  for (std::int32_t first = 0; first < n_columns; first += kKeysAtOnce) {
    const std::int32_t n = std::min(kKeysAtOnce, n_columns - first);
    expand_rows<true>(shape, cursor, first, n, rows.get());
    for (std::int32_t i = 0; i < kKeysAtOnce; ++i) {
      for (int c = 0; c < head_dim; ++c) {
        keys[static_cast<std::size_t>(c * kKeysAtOnce + i)] =
            i < n ? static_cast<double>(rows[static_cast<std::size_t>(i * head_dim + c)]) : 0.0;
      }
    }
    for (std::size_t g = 0; g < n_group; ++g) {
      quadratic_forms(keys.get(), head_dim, lower.get() + g * width * width, mean + g * width, squares, dots);
      double* scores = out + static_cast<std::int64_t>(g) * n_columns + first;
      for (std::int32_t i = 0; i < n; ++i) scores[i] = scale * dots[i] + 0.5 * scale * scale * squares[i];
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace winnow::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::kernels {

HWY_EXPORT(add_query_moments);
HWY_EXPORT(expected_scores);

void add_query_moments(const float* q, std::int64_t row_stride, std::int32_t n_rows, int head_dim,
                       std::span<double> sum, std::span<double> outer) {
  assert(sum.size() == static_cast<std::size_t>(head_dim) && outer.size() == sum.size() * sum.size());
  HWY_DYNAMIC_DISPATCH(add_query_moments)(q, row_stride, n_rows, head_dim, sum.data(), outer.data());
}

void expected_scores(const AttentionShape& shape, const HeadEntries& entries, std::int32_t n_columns,
                     std::span<const double> mean, std::span<const double> covariance, std::span<double> out) {
  assert(shape.key_dim % 8 == 0 && n_columns <= entries.n_entries);
  assert(mean.size() == static_cast<std::size_t>(shape.n_group * shape.key_dim));
  assert(covariance.size() == mean.size() * static_cast<std::size_t>(shape.key_dim));
  assert(out.size() >= static_cast<std::size_t>(shape.n_group) * static_cast<std::size_t>(n_columns));
  HWY_DYNAMIC_DISPATCH(expected_scores)(shape, entries, n_columns, mean.data(), covariance.data(), out.data());
}

}  // namespace winnow::kernels
#endif
