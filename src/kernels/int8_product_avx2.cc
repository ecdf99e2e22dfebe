// Products of quantised weights by AVX2, for processors without dot products of bytes.
#include <hwy/base.h>

#include "kernels/int8_product.h"

#if HWY_ARCH_X86_64

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "kernels/read_ahead.h"
#include "kernels/x86_vectors-inl.h"

HWY_PUSH_ATTRIBUTES("avx2,fma,f16c")

#include "kernels/int8_vectors_avx2-inl.h"

namespace winnow::kernels {
namespace {

struct Vectors : Vectors256 {
  static constexpr int kTileRows = 4;
  // Products of bytes are added in pairs as 16-bit integers.
  static constexpr bool kDotSaturates = true;
  static Int pairs(Int u, Int s) { return _mm256_maddubs_epi16(u, s); }
  static Int add_words(Int a, Int b) { return _mm256_add_epi16(a, b); }
  static Int add_pairs(Int sum, Int words) {
    return _mm256_add_epi32(sum, _mm256_madd_epi16(words, _mm256_set1_epi16(1)));
  }
  static Int absolute(Int bytes) { return _mm256_abs_epi8(bytes); }
  static Int with_sign_of(Int x, Int signs) { return _mm256_sign_epi8(x, signs); }
  // Keeps the order of a sum: gcc sorts the additions in pairs, has no registers for all that it then holds, and what
  // it stores and reads again costs a quarter of the time.
  static void hold(Int& x) { asm("" : "+x"(x)); }
};

}  // namespace
}  // namespace winnow::kernels

#include "kernels/int8_panels-inl.h"
#include "kernels/int8_product-inl.h"

namespace winnow::kernels {
const Int8Products kAvx2Products = {quantise, multiply};
}  // namespace winnow::kernels

HWY_POP_ATTRIBUTES
#endif
