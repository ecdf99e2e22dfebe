// Products of quantised weights by AVX2, for processors without dot products of bytes.
#include <hwy/base.h>

#include "kernels/products/int8_product.h"

#if HWY_ARCH_X86_64

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "kernels/simd/read_ahead.h"
#include "kernels/simd/x86_vectors-inl.h"

HWY_PUSH_ATTRIBUTES("avx2,fma,f16c")

#include "kernels/products/int8_vectors_avx2-inl.h"

namespace winnow::kernels {
namespace {

struct Vectors : Vectors256 {
  static constexpr int kTileRows = 4;
  static constexpr int kHalvesTileRows = kTileRows;
  static constexpr int kStreamedRows = 1;
  // Products of bytes are added in pairs as 16-bit integers.
  static constexpr bool kDotSaturates = true;
  static Int pairs(Int u, Int s) { return _mm256_maddubs_epi16(u, s); }
  static Int add_words(Int a, Int b) { return _mm256_add_epi16(a, b); }
  // Returns sum + the products of two pairs of words.
  static Int dot_words(Int sum, Int a, Int b) { return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b)); }
  // Return the first and third of every four signed bytes as words, and the second and fourth.
  static Int even_bytes(Int x) { return _mm256_srai_epi16(_mm256_slli_epi16(x, 8), 8); }
  static Int odd_bytes(Int x) { return _mm256_srai_epi16(x, 8); }
  // Return absolute bytes, up to 128, and x with the sign of each byte of `of`.
  static Int absolute_bytes(Int x) { return _mm256_abs_epi8(x); }
  static Int with_signs(Int x, Int of) { return _mm256_sign_epi8(x, of); }
  // Keeps the order of a sum: gcc would reorder the additions into pairs and spill sums for want of registers, which
  // costs a quarter of the time.
  static void hold(Int& x) { asm("" : "+x"(x)); }
};

}  // namespace
}  // namespace winnow::kernels

#include "kernels/products/int8_product-inl.h"

namespace winnow::kernels {
const Int8Products kAvx2Products = {quantise, multiply};
}  // namespace winnow::kernels

HWY_POP_ATTRIBUTES
#endif
