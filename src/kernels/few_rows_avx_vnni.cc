// Products of few rows by AVX-VNNI, for processors without AVX-512.
#include <hwy/base.h>

#include "kernels/few_rows_kernels.h"

#if HWY_ARCH_X86_64

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include "kernels/x86_vectors-inl.h"

HWY_PUSH_ATTRIBUTES("avx2,fma,f16c,avxvnni")

#include "kernels/few_rows_vectors_avx2-inl.h"
#include "kernels/int8_vectors_avx2-inl.h"

namespace winnow::kernels {
namespace {

using Vectors = Vectors256;

constexpr bool kDotSaturates = false;

template <bool /*kIsWide*/>
inline Bits dot(Bits q, Bits x) {
  const __m256i zero = _mm256_setzero_si256();
  return {_mm256_dpbusd_avx_epi32(zero, q.a, x.a), _mm256_dpbusd_avx_epi32(zero, q.b, x.b)};
}

}  // namespace
}  // namespace winnow::kernels

#include "kernels/few_rows_product-inl.h"

namespace winnow::kernels {
const FewRowsKernels kAvxVnniFewRows = {has_product, quantise, multiply};
}  // namespace winnow::kernels

HWY_POP_ATTRIBUTES
#endif
