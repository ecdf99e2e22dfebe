// Vectorised powers of two.
#if defined(WINNOW_KERNELS_EXP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WINNOW_KERNELS_EXP_INL_H_
#undef WINNOW_KERNELS_EXP_INL_H_
#else
#define WINNOW_KERNELS_EXP_INL_H_
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Below it, 2^x counts as 0.
inline constexpr float kLowestExponent = -125.0F;

// 2^x for x in [kLowestExponent, 0], with a relative error below 2e-7.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp2_in_range(D d, V x) {
  const hn::RebindToSigned<D> di;
  // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits.
  const V shifted = hn::Add(x, hn::Set(d, 12582912.0F));
  const V f = hn::Sub(x, hn::Sub(shifted, hn::Set(d, 12582912.0F)));
  // Minimax polynomial of 2^f on [-0.5, 0.5].
  V p = hn::Set(d, 1.32647273e-3F);
  p = hn::MulAdd(p, f, hn::Set(d, 9.67151299e-3F));
  p = hn::MulAdd(p, f, hn::Set(d, 5.55073358e-2F));
  p = hn::MulAdd(p, f, hn::Set(d, 2.40222424e-1F));
  p = hn::MulAdd(p, f, hn::Set(d, 6.93147004e-1F));
  p = hn::MulAdd(p, f, hn::Set(d, 1.0F));
  return hn::BitCast(d, hn::Add(hn::BitCast(di, p), hn::ShiftLeft<23>(hn::BitCast(di, shifted))));
}

// An exponent brought into that range. A score of +inf against its clamped maximum becomes 0 here, whose power is 1,
// not NaN.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V clamp_exponent(D d, V x) {
  return hn::Min(hn::Max(x, hn::Set(d, kLowestExponent)), hn::Zero(d));
}

// 2^x for x <= 0; exactly 0 below the range, so that what is hidden (-inf) counts nothing.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp2_of_negative(D d, V x) {
  return hn::IfThenElseZero(hn::Ge(x, hn::Set(d, kLowestExponent)), exp2_in_range(d, clamp_exponent(d, x)));
}

}  // namespace HWY_NAMESPACE
}  // namespace winnow::kernels
HWY_AFTER_NAMESPACE();

#endif
