// Vectorised powers of two.
#if defined(WINNOW_KERNELS_EXP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WINNOW_KERNELS_EXP_INL_H_
#undef WINNOW_KERNELS_EXP_INL_H_
#else
#define WINNOW_KERNELS_EXP_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "kernels/simd/tiling.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// At and below this exponent 2^x is exactly 0, so that hidden entries (-inf) have no weight.
inline constexpr float kLowestExponent = -127.0F;

// Clamps an exponent to the range of exp2_in_range. A score of +inf minus its clamped maximum becomes 0, whose power is
// 1 and not NaN.
template <class D, class V>
HWY_INLINE V clamp_exponent(D d, V x) {
  return hn::Min(hn::Max(x, hn::Set(d, kLowestExponent)), hn::Zero(d));
}

// Returns 2^x for x in [kLowestExponent, 0], with a relative error below 2e-7 from -125.5 upwards and an absolute one
// below 2^-126.
template <class D, class V>
HWY_INLINE V exp2_in_range(D d, V x) {
  const hn::RebindToSigned<D> di;
  // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits.
  const V shifted = hn::Add(x, hn::Set(d, 12582912.0F));
  const V f = hn::Sub(x, hn::Sub(shifted, hn::Set(d, 12582912.0F)));
  // Minimax polynomial of 2^f on [-0.5, 0.5], exact at 0.
  V p = hn::Set(d, 1.32647273e-3F);
  p = hn::MulAdd(p, f, hn::Set(d, 9.67151299e-3F));
  p = hn::MulAdd(p, f, hn::Set(d, 5.55073358e-2F));
  p = hn::MulAdd(p, f, hn::Set(d, 2.40222424e-1F));
  p = hn::MulAdd(p, f, hn::Set(d, 6.93147004e-1F));
  p = hn::MulAdd(p, f, hn::Set(d, 1.0F));
  // The exponent goes from 127 to 127 + n; for n = -127 and p = 1 that leaves the bits of 0.
  return hn::BitCast(d, hn::Add(hn::BitCast(di, p), hn::ShiftLeft<23>(hn::BitCast(di, shifted))));
}

// Returns 2^x for x <= 0.
template <class D, class V>
HWY_INLINE V exp2_of_negative(D d, V x) {
  return exp2_in_range(d, clamp_exponent(d, x));
}

// Returns cap * tanh(x / cap), with an error below 1e-7 * cap. -inf becomes -cap: entries are hidden afterwards.
template <class D, class V>
HWY_INLINE V soft_capped(D d, V x, float cap) {
  const V doubled = hn::Mul(hn::Abs(x), hn::Set(d, -2.0F * kLog2E / cap));
  const V t = exp2_of_negative(d, doubled);
  const V one = hn::Set(d, 1.0F);
  return hn::CopySign(hn::Mul(hn::Set(d, cap), hn::Div(hn::Sub(one, t), hn::Add(one, t))), x);
}

// Replaces scores [n] by their soft-capped ones, n a multiple of the vectors' lanes.
template <class D>
HWY_INLINE void soft_cap_scores(D d, float* scores, std::int64_t n, float cap) {
  for (std::int64_t i = 0; i < n; i += static_cast<std::int64_t>(hn::Lanes(d))) {
    hn::Store(soft_capped(d, hn::Load(d, scores + i), cap), d, scores + i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace winnow::kernels
HWY_AFTER_NAMESPACE();

#endif
