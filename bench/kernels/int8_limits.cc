#include <hwy/base.h>

#include <algorithm>
#include <cstdint>

#include "machine_limits.h"

#if HWY_ARCH_X86_64

#include "kernels/simd/x86_vectors-inl.h"

namespace winnow::bench {
namespace {

// Each function runs twelve independent chains, which hide the latency of a dot product, and returns the number of
// operations.
#define WINNOW_MULTIPLY_REGISTERS(name, target_name, vector, set, dot, bytes)                 \
  __attribute__((target(target_name))) double name(std::int64_t n) {                          \
    const vector x = set(3);                                                                  \
    vector sums[12];                                                                          \
    for (int c = 0; c < 12; ++c) sums[c] = set(static_cast<char>(c)); /* else they are one */ \
    for (std::int64_t i = 0; i < n; ++i) {                                                    \
      _Pragma("GCC unroll 16") for (vector & sum : sums) { sum = dot(sum, x, x); }            \
    }                                                                                         \
    volatile std::int64_t keep = 0;                                                           \
    for (const vector& sum : sums) keep = keep + reinterpret_cast<const long long&>(sum);     \
    return 2.0 * (bytes)*12.0 * static_cast<double>(n);                                       \
  }

// A factor must depend on the previous result; otherwise the compiler would multiply only once.
#define WINNOW_MADDUBS(sum, a, b) _mm256_maddubs_epi16(a, sum)

WINNOW_MULTIPLY_REGISTERS(multiply_avx512, "avx512f,avx512bw,avx512vnni", __m512i, _mm512_set1_epi8,
                          _mm512_dpbusd_epi32, 64)
WINNOW_MULTIPLY_REGISTERS(multiply_avx_vnni, "avx2,avxvnni", __m256i, _mm256_set1_epi8, _mm256_dpbusd_avx_epi32, 32)
WINNOW_MULTIPLY_REGISTERS(multiply_avx2, "avx2", __m256i, _mm256_set1_epi8, WINNOW_MADDUBS, 32)

}  // namespace

double peak_int8_gops(kernels::Int8Unit unit) {
  double best = 0;
  for (int repetition = 0; repetition < 10 && unit != kernels::Int8Unit::kNone; ++repetition) {
    const double start = cpu_seconds();
    const double operations = unit == kernels::Int8Unit::kAvx512Vnni ? multiply_avx512(2'000'000)
                              : unit == kernels::Int8Unit::kAvxVnni  ? multiply_avx_vnni(2'000'000)
                                                                     : multiply_avx2(2'000'000);
    best = std::max(best, operations / (cpu_seconds() - start) / 1e9);
  }
  return best;
}

}  // namespace winnow::bench

#else

namespace winnow::bench {
double peak_int8_gops(kernels::Int8Unit) { return 0; }
}  // namespace winnow::bench
#endif
