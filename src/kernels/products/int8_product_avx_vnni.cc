// Products of quantised weights by AVX-VNNI, for processors without AVX-512.
#include <hwy/base.h>

#include "kernels/products/int8_product.h"

#if HWY_ARCH_X86_64

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "kernels/simd/read_ahead.h"
#include "kernels/simd/x86_vectors-inl.h"

HWY_PUSH_ATTRIBUTES("avx2,fma,f16c,avxvnni")

#include "kernels/products/int8_vectors_avx2-inl.h"

namespace winnow::kernels {
namespace {

struct Vectors : Vectors256 {
  static constexpr int kTileRows = 3;
  static constexpr int kHalvesTileRows = kTileRows;
  static constexpr int kStreamedRows = 2;
  static constexpr bool kDotSaturates = false;
  static Int dot(Int sum, Int u, Int s) { return _mm256_dpbusd_avx_epi32(sum, u, s); }
};

}  // namespace
}  // namespace winnow::kernels

#include "kernels/products/int8_product-inl.h"

namespace winnow::kernels {
const Int8Products kAvxVnniProducts = {quantise, multiply};
}  // namespace winnow::kernels

HWY_POP_ATTRIBUTES
#endif
