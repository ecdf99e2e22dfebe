#include <hwy/base.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "machine_limits.h"

#if HWY_ARCH_X86_64

#include "kernels/simd/bf16_begin-inl.h"

namespace winnow::bench {
namespace {

// Runs twelve independent chains, which hide the latency of a dot product. Returns the number of operations.
double multiply_registers(std::int64_t n) {
  const __m512 x = _mm512_set1_ps(1e-3F);
  const __m512bh pairs = _mm512_cvtne2ps_pbh(x, x);
  __m512 sums[12];
#pragma GCC unroll 16
  for (int c = 0; c < 12; ++c) sums[c] = _mm512_set1_ps(1e-3F * static_cast<float>(c));  // keeps chains distinct
  for (std::int64_t i = 0; i < n; ++i) {
#pragma GCC unroll 16
    for (__m512& sum : sums) sum = _mm512_dpbf16_ps(sum, pairs, pairs);
  }
  for (int c = 1; c < 12; ++c) sums[0] = _mm512_add_ps(sums[0], sums[c]);
  volatile float keep = _mm512_reduce_add_ps(sums[0]);
  (void)keep;
  return 2.0 * 32.0 * 12.0 * static_cast<double>(n);
}

// Uses four tiles of sums, as a kernel's inner loop does. Returns the number of operations. The numbers are not zeros,
// because tiles of zeros multiply faster.
double multiply_tiles(std::int64_t n) {
  struct Config {
    std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
    std::uint16_t bytes_per_row[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  };
  static constexpr Config kConfig;
  static_assert(sizeof(Config) == 64);
  alignas(64) std::uint16_t numbers[16 * 32];
  for (std::size_t i = 0; i < 16 * 32; ++i) {
    const float number = 0.3F + 1e-3F * static_cast<float>(i * 37 % 512);
    std::uint32_t bits;
    std::memcpy(&bits, &number, sizeof(bits));
    numbers[i] = static_cast<std::uint16_t>((i % 3 == 0 ? 0x8000U : 0U) | bits >> 16);
  }
  _tile_loadconfig(&kConfig);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_loadd(4, numbers, 64);
  _tile_loadd(5, numbers, 64);
  _tile_loadd(6, numbers, 64);
  _tile_loadd(7, numbers, 64);
  for (std::int64_t i = 0; i < n; ++i) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  alignas(64) float sums[16 * 16];
  _tile_stored(0, sums, 64);
  _tile_release();
  volatile float keep = sums[0];
  (void)keep;
  return 4.0 * 2.0 * 16.0 * 16.0 * 32.0 * static_cast<double>(n);
}

}  // namespace

double peak_bf16_gflops(kernels::Bf16Unit unit) {
  double best = 0;
  for (int repetition = 0; repetition < 20 && unit != kernels::Bf16Unit::kNone; ++repetition) {
    const double start = cpu_seconds();
    const double operations = unit == kernels::Bf16Unit::kAmx ? multiply_tiles(200'000) : multiply_registers(500'000);
    best = std::max(best, operations / (cpu_seconds() - start) / 1e9);
  }
  return best;
}

}  // namespace winnow::bench

HWY_POP_ATTRIBUTES

#else

namespace winnow::bench {
double peak_bf16_gflops(kernels::Bf16Unit) { return 0; }
}  // namespace winnow::bench
#endif
