// Products of few rows by AVX512-VNNI.
#include <hwy/base.h>

#include "kernels/few_rows_kernels.h"

#if HWY_ARCH_X86_64

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include "kernels/x86_vectors-inl.h"

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512cd,avx512vnni,avx2,fma,f16c")

#include "kernels/few_rows_vectors_avx512-inl.h"
#include "kernels/int8_vectors_avx512-inl.h"

namespace winnow::kernels {
namespace {

using Vectors = Vectors512;

constexpr bool has_product(WeightBlocks /*blocks*/) { return true; }

}  // namespace
}  // namespace winnow::kernels

#include "kernels/few_rows_product-inl.h"

namespace winnow::kernels {
const FewRowsKernels kAvx512VnniFewRows = {has_product, quantise, multiply};
}  // namespace winnow::kernels

HWY_POP_ATTRIBUTES
#endif
