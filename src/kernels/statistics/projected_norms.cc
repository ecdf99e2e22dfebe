// CriticalKV's value term (arXiv 2502.03805, section 4): the L1 norm of each value after the output projection, by the
// same register tiles as attention's scores.
#include "kernels/simd/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/statistics/projected_norms.cc"
#include <hwy/aligned_allocator.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cassert>

#include "kernels/entries/packing-inl.h"
#include "kernels/entries/rows.h"
#include "kernels/entries/run_cursor.h"
#include "kernels/simd/tiling.h"
#include "kernels/statistics/bf16_statistics.h"
#include "kernels/statistics/projected_norms.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Entries per block; a panel of W_O is packed once for all of them.
inline constexpr std::int32_t kNormBlock = 32 * kTileRows;

// Packs columns [column, column + kPanel) of w [head_dim][n_embd] as one panel [head_dim][kPanel], with zeros after the
// last column.
HWY_INLINE void pack_columns(const float* w, int head_dim, int n_embd, int column, float* panel) {
  const int n = std::min(kPanel, n_embd - column);
  for (int i = 0; i < head_dim; ++i, panel += kPanel) {
    std::copy_n(w + static_cast<std::int64_t>(i) * n_embd + column, n, panel);
    std::fill(panel + n, panel + kPanel, 0.0F);
  }
}

void projected_value_norms(const AttentionShape& shape, const HeadEntries& entries, const float* w_o, int n_embd,
                           float* out) {
  const F d;
  const int head_dim = shape.value_dim;
  const auto width = static_cast<std::size_t>(head_dim);
  const auto values = hwy::AllocateAligned<float>(kNormBlock * width);              // [kNormBlock][head_dim]
  const auto panel = hwy::AllocateAligned<float>(kPanel * width);                   // [head_dim][kPanel]
  const auto sums = hwy::AllocateAligned<float>(kNormBlock * std::size_t{kLanes});  // [kNormBlock][kLanes]
  alignas(64) float tile_out[kTileRows * kPanel];
  RunCursor cursor(entries);
  for (std::int32_t block = 0; block < entries.n_entries; block += kNormBlock) {
    const std::int32_t n = std::min(kNormBlock, entries.n_entries - block);
    expand_rows<false>(shape, cursor, block, n, values.get());
    std::fill_n(values.get() + n * head_dim, (round_up(n, kTileRows) - n) * head_dim, 0.0F);
    std::fill_n(sums.get(), kNormBlock * kLanes, 0.0F);
    for (int g = 0; g < shape.n_group; ++g) {
      const float* w = w_o + static_cast<std::int64_t>(g) * head_dim * n_embd;
      for (int column = 0; column < n_embd; column += kPanel) {
        pack_columns(w, head_dim, n_embd, column, panel.get());
        for (std::int32_t i = 0; i < n; i += kTileRows) {
          multiply_tile<kTileVecs>(values.get() + static_cast<std::int64_t>(i) * head_dim, panel.get(), head_dim,
                                   tile_out, kPanel);
          for (int r = 0; r < kTileRows; ++r) {
            float* sum = sums.get() + (i + r) * kLanes;
            VF total = hn::Load(d, sum);
            for (int c = 0; c < kPanel; c += kLanes) {
              total = hn::Add(total, hn::Abs(hn::Load(d, tile_out + r * kPanel + c)));
            }
            hn::Store(total, d, sum);
          }
        }
      }
    }
    for (std::int32_t i = 0; i < n; ++i) {
      const float total = hn::GetLane(hn::SumOfLanes(d, hn::Load(d, sums.get() + i * kLanes)));
      out[block + i] = total / static_cast<float>(shape.n_group);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace winnow::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::kernels {

HWY_EXPORT(projected_value_norms);

void projected_value_norms(const AttentionShape& shape, const HeadEntries& entries, std::span<const float> w_o,
                           int n_embd, std::span<float> out) {
  assert(w_o.size() >= static_cast<std::size_t>(shape.n_group * shape.value_dim) * static_cast<std::size_t>(n_embd));
  assert(out.size() >= static_cast<std::size_t>(entries.n_entries));
  if (prefers_bf16_norms(shape)) {
    bf16_projected_norms(current_bf16_unit(), shape, entries, w_o, n_embd, out);
    return;
  }
  HWY_DYNAMIC_DISPATCH(projected_value_norms)(shape, entries, w_o.data(), n_embd, out.data());
}

}  // namespace winnow::kernels
#endif
