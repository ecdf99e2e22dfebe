// Products of quantised weights by AVX512-VNNI.
#include <hwy/base.h>

#include "kernels/products/int8_product.h"

#if HWY_ARCH_X86_64

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "kernels/simd/read_ahead.h"
#include "kernels/simd/x86_vectors-inl.h"

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512cd,avx512vnni,avx2,fma,f16c")

#include "kernels/products/int8_vectors_avx512-inl.h"

namespace winnow::kernels {
namespace {
using Vectors = Vectors512;
}  // namespace
}  // namespace winnow::kernels

#include "kernels/products/int8_product-inl.h"

namespace winnow::kernels {
const Int8Products kAvx512VnniProducts = {quantise, multiply};
}  // namespace winnow::kernels

HWY_POP_ATTRIBUTES
#endif
