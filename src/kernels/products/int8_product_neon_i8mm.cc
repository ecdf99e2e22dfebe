// Products of quantised weights by NEON's products of matrices of bytes (FEAT_I8MM).
#include <hwy/base.h>

#include "kernels/products/int8_product.h"

#if HWY_ARCH_ARM_A64

#include <arm_neon.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "kernels/simd/read_ahead.h"

HWY_PUSH_ATTRIBUTES("arch=armv8.2-a+dotprod+i8mm")

#include "kernels/products/int8_vectors_neon-inl.h"

namespace winnow::kernels {
namespace {

struct Vectors : VectorsNeon {
  static constexpr bool kMultipliesMatrices = true;
  // Returns sums + a b^T for a and b [2][8].
  static Int multiply_matrices(Int sums, Int a, Int b) {
    return vmmlaq_s32(sums, vreinterpretq_s8_s32(a), vreinterpretq_s8_s32(b));
  }
  // Returns eight bytes of a and eight of b.
  static Int two_eights(const std::int8_t* a, const std::int8_t* b) {
    return vreinterpretq_s32_s8(vcombine_s8(vld1_s8(a), vld1_s8(b)));
  }
  // Return lanes 0 and 2 of both, and lanes 1 and 3.
  static Int even_lanes(Int a, Int b) { return vuzp1q_s32(a, b); }
  static Int odd_lanes(Int a, Int b) { return vuzp2q_s32(a, b); }
};

}  // namespace
}  // namespace winnow::kernels

#include "kernels/products/int8_product-inl.h"

namespace winnow::kernels {
const Int8Products kNeonI8mmProducts = {quantise, multiply};
}  // namespace winnow::kernels

HWY_POP_ATTRIBUTES
#endif
