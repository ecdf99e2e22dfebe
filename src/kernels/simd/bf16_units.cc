#include "kernels/simd/bf16_units.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace winnow::kernels {

#if defined(__x86_64__)
namespace {

struct Cpuid {
  unsigned a = 0, b = 0, c = 0, d = 0;
};

Cpuid cpuid(unsigned leaf, unsigned subleaf) {
  Cpuid r;
  __get_cpuid_count(leaf, subleaf, &r.a, &r.b, &r.c, &r.d);
  return r;
}

// Returns the states that the system saves (XCR0); requires OSXSAVE.
unsigned saved_states() {
  unsigned low = 0, high = 0;
  asm("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

bool request_tiles() {
#if defined(__linux__)
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM of asm/prctl.h, Linux 5.16
  constexpr long kTileData = 18;               // XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

}  // namespace

Bf16Support detect_bf16_support() {
  constexpr unsigned kAvx512States = 0xE6;
  constexpr unsigned kTileStates = 3U << 17;
  Bf16Support support;
  if (__get_cpuid_max(0, nullptr) < 7 || (cpuid(1, 0).c >> 27 & 1U) == 0) return support;
  const unsigned states = saved_states();
  const Cpuid features = cpuid(7, 0);
  if ((states & kAvx512States) != kAvx512States) return support;
  support.avx512 = (cpuid(7, 1).a >> 5 & 1U) != 0;
  // Measured: a Xeon with AMX starts a vdpbf16ps every second cycle, a fourth of its rate of multiply-adds and thus
  // half of their products; Zen 5 starts two per cycle.
  constexpr unsigned kAmdSecondWord = 0x69746E65;  // "enti" of AuthenticAMD
  support.avx512_is_fast = support.avx512 && cpuid(0, 0).d == kAmdSecondWord;
  const bool has_tiles = (features.d >> 22 & 1U) != 0 && (features.d >> 24 & 1U) != 0;
  support.amx = support.avx512 && has_tiles && (states & kTileStates) == kTileStates && request_tiles();
  return support;
}
#else
Bf16Support detect_bf16_support() { return {}; }
#endif

}  // namespace winnow::kernels
