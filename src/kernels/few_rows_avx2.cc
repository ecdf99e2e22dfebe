// Products of few rows by AVX2, for processors without dot products of bytes.
#include <hwy/base.h>

#include "kernels/few_rows_kernels.h"

#if HWY_ARCH_X86_64

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include "kernels/x86_vectors-inl.h"

HWY_PUSH_ATTRIBUTES("avx2,fma,f16c")

#include "kernels/few_rows_vectors_avx2-inl.h"
#include "kernels/int8_vectors_avx2-inl.h"

namespace winnow::kernels {
namespace {

using Vectors = Vectors256;

constexpr bool kDotSaturates = true;

template <bool kIsWide>
inline __m256i dot_block(__m256i q, __m256i x) {
  const __m256i sizes = kIsWide ? _mm256_abs_epi8(q) : q;
  const __m256i pairs = _mm256_maddubs_epi16(sizes, kIsWide ? _mm256_sign_epi8(x, q) : x);
  return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

template <bool kIsWide>
inline Bits dot(Bits q, Bits x) {
  return {dot_block<kIsWide>(q.a, x.a), dot_block<kIsWide>(q.b, x.b)};
}

}  // namespace
}  // namespace winnow::kernels

#include "kernels/few_rows_product-inl.h"

namespace winnow::kernels {
const FewRowsKernels kAvx2FewRows = {has_product, quantise, multiply};
}  // namespace winnow::kernels

HWY_POP_ATTRIBUTES
#endif
