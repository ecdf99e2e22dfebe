#include "kernels/simd/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/products/rms_norm.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>

#include "kernels/products/rms_norm.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

double sum_of_squares(const float* x, int n) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> df;
  const int lanes = static_cast<int>(hn::Lanes(d));
  constexpr int kSums = 4;  // independent sums, which hide the latency of additions
  hn::Vec<decltype(d)> sums[kSums];
  for (auto& sum : sums) sum = hn::Zero(d);
  int i = 0;
  for (; i + kSums * lanes <= n; i += kSums * lanes) {
    for (int s = 0; s < kSums; ++s) {
      const auto v = hn::PromoteTo(d, hn::LoadU(df, x + i + s * lanes));
      sums[s] = hn::MulAdd(v, v, sums[s]);
    }
  }
  double sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3]))));
  for (; i < n; ++i) sum += static_cast<double>(x[i]) * x[i];
  return sum;
}

void rms_norm_row(const float* x, const float* weight, float eps, int n, float* y) {
  const auto factor = static_cast<float>(1 / std::sqrt(sum_of_squares(x, n) / n + eps));
  const hn::ScalableTag<float> d;
  const int lanes = static_cast<int>(hn::Lanes(d));
  const auto factors = hn::Set(d, factor);
  int i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto scaled = hn::Mul(hn::LoadU(d, x + i), factors);
    hn::StoreU(weight == nullptr ? scaled : hn::Mul(scaled, hn::LoadU(d, weight + i)), d, y + i);
  }
  for (; i < n; ++i) y[i] = x[i] * factor * (weight == nullptr ? 1.0F : weight[i]);
}

}  // namespace HWY_NAMESPACE
}  // namespace winnow::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::kernels {

HWY_EXPORT(rms_norm_row);

void rms_norm_row(const float* x, const float* weight, float eps, int n, float* y) {
  HWY_DYNAMIC_DISPATCH(rms_norm_row)(x, weight, eps, n, y);
}

}  // namespace winnow::kernels
#endif
