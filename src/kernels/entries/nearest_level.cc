#include "kernels/simd/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/entries/nearest_level.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>

#include "kernels/entries/nearest_level.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void nearest_levels(const float* y, int n, std::span<const float> bounds, std::int32_t* index) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const int lanes = static_cast<int>(hn::Lanes(d));
  int i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto x = hn::Abs(hn::LoadU(d, y + i));
    auto at = hn::Zero(di);
    // A true mask is -1.
    for (const float bound : bounds) {
      at = hn::Sub(at, hn::VecFromMask(di, hn::RebindMask(di, hn::Gt(x, hn::Set(d, bound)))));
    }
    hn::StoreU(at, di, index + i);
  }
  for (; i < n; ++i) {
    index[i] = 0;
    for (const float bound : bounds) index[i] += std::abs(y[i]) > bound ? 1 : 0;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace winnow::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::kernels {

HWY_EXPORT(nearest_levels);

void nearest_levels(const float* y, int n, std::span<const float> bounds, std::int32_t* index) {
  HWY_DYNAMIC_DISPATCH(nearest_levels)(y, n, bounds, index);
}

}  // namespace winnow::kernels
#endif
