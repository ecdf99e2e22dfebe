#include "kernels/simd/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/softmax_row.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>

#include "kernels/attention/softmax_row.h"
#include "kernels/simd/exp-inl.h"
#include "kernels/simd/tiling.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

float softmax_row(float* row, int n, float soft_cap, float sink) {
  const hn::ScalableTag<float> d;
  const int lanes = static_cast<int>(hn::Lanes(d));
  const auto lowest = hn::Set(d, std::numeric_limits<float>::lowest());
  // Lanes after the row's end read as the lowest number. Masked loads would read that memory where they are emulated.
  HWY_ALIGN float end[hn::MaxLanes(hn::ScalableTag<float>())];
  const auto for_each = [&](const auto& body) HWY_ATTR {
    int i = 0;
    for (; i + lanes <= n; i += lanes) hn::StoreU(body(hn::LoadU(d, row + i)), d, row + i);
    if (i == n) return;
    hn::Store(lowest, d, end);
    for (int k = i; k < n; ++k) end[k - i] = row[k];
    hn::Store(body(hn::Load(d, end)), d, end);
    for (int k = i; k < n; ++k) row[k] = end[k - i];
  };

  auto high = lowest, broken = hn::Zero(d);
  for_each([&](auto v) HWY_ATTR {
    broken = hn::Add(broken, hn::Sub(v, v));  // 0 unless v is not finite
    if (soft_cap != 0) v = soft_capped(d, v, soft_cap);
    high = hn::Max(high, v);
    return v;
  });
  const float largest = hn::GetLane(hn::MaxOfLanes(d, high));
  const bool has_sink = sink != -std::numeric_limits<float>::infinity();
  if (hn::GetLane(hn::SumOfLanes(d, broken)) != 0.0F || (has_sink && !std::isfinite(sink))) {
    return std::numeric_limits<float>::quiet_NaN();
  }
  const float top = has_sink ? std::max(largest, sink) : largest;
  const auto shift = hn::Set(d, top), log2e = hn::Set(d, kLog2E);
  auto sums = hn::Zero(d);
  for_each([&](auto v) HWY_ATTR {
    const auto e = exp2_of_negative(d, hn::Mul(hn::Sub(v, shift), log2e));
    sums = hn::Add(sums, e);
    return e;
  });
  const float sum = hn::GetLane(hn::SumOfLanes(d, sums)) + (has_sink ? std::exp(sink - top) : 0.0F);
  const auto factor = hn::Set(d, 1.0F / sum);
  for_each([&](auto v) HWY_ATTR { return hn::Mul(v, factor); });
  return largest;
}

}  // namespace HWY_NAMESPACE
}  // namespace winnow::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::kernels {

HWY_EXPORT(softmax_row);

float softmax_row(float* row, int n, float soft_cap, float sink) {
  return HWY_DYNAMIC_DISPATCH(softmax_row)(row, n, soft_cap, sink);
}

}  // namespace winnow::kernels
#endif
