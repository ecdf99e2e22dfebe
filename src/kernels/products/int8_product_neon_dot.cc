// Products of quantised weights by NEON's dot products of bytes.
#include <hwy/base.h>

#include "kernels/products/int8_product.h"

#if HWY_ARCH_ARM_A64

#include <arm_neon.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "kernels/simd/read_ahead.h"

HWY_PUSH_ATTRIBUTES("arch=armv8.2-a+dotprod")

#include "kernels/products/int8_vectors_neon-inl.h"

namespace winnow::kernels {
namespace {
using Vectors = VectorsNeon;
}  // namespace
}  // namespace winnow::kernels

#include "kernels/products/int8_product-inl.h"

namespace winnow::kernels {
const Int8Products kNeonDotProducts = {quantise, multiply};
}  // namespace winnow::kernels

HWY_POP_ATTRIBUTES
#endif
