// The rotation of r4 and r3 (rotated_codes.h). Every instruction set gives the same bits.
#include "kernels/simd/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/entries/rotation.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>

#include "kernels/entries/rotated_codes.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Replaces pairs of numbers `stride` apart by their sum and their difference, for strides inside a vector.
template <int stride, class D>
HWY_INLINE hn::Vec<D> butterflies(D d, hn::Vec<D> x) {
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(D()));
  if constexpr (stride < kLanes) {
    const hn::RebindToSigned<D> di;
    const auto lane = hn::Iota(di, 0);
    const auto other = hn::TableLookupLanes(x, hn::IndicesFromVec(d, hn::Xor(lane, hn::Set(di, stride))));
    const auto is_second = hn::RebindMask(d, hn::TestBit(lane, hn::Set(di, stride)));
    return hn::IfThenElse(is_second, hn::Sub(other, x), hn::Add(x, other));
  } else {
    return x;
  }
}

void rotate_row(const float* x, float* y, int head_dim) {
  const hn::ScalableTag<float> d;
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(hn::ScalableTag<float>()));
  const int block = code_block(head_dim);
  const auto factor = hn::Set(d, 1.0F / std::sqrt(static_cast<float>(block)));
  for (int i = 0; i < head_dim; i += kLanes) {
    auto v = hn::Mul(factor, hn::LoadU(d, x + i));
    v = butterflies<1>(d, v);
    v = butterflies<2>(d, v);
    v = butterflies<4>(d, v);
    v = butterflies<8>(d, v);
    hn::StoreU(v, d, y + i);
  }
  for (float* at = y; at < y + head_dim; at += block) {
    for (int stride = kLanes; stride < block; stride *= 2) {
      for (int first = 0; first < block; first += 2 * stride) {
        for (int i = first; i < first + stride; i += kLanes) {
          const auto a = hn::LoadU(d, at + i), b = hn::LoadU(d, at + i + stride);
          hn::StoreU(hn::Add(a, b), d, at + i);
          hn::StoreU(hn::Sub(a, b), d, at + i + stride);
        }
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace winnow::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::kernels {

HWY_EXPORT(rotate_row);

void rotate_row(const float* x, float* y, int head_dim) { HWY_DYNAMIC_DISPATCH(rotate_row)(x, y, head_dim); }

}  // namespace winnow::kernels
#endif
