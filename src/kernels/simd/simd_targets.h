// Limits Highway's targets; included before any other Highway header. The kernels keep arrays of vectors in registers,
// which needs vector sizes that are known at compile time: the scalable targets of Arm and RISC-V fall back to their
// fixed-size ones.
#pragma once

// Each target adds to the compile time. Of the 128-bit ones SSE4 is enough: processors with SSSE3 alone are from before
// 2008.
#if defined(__SANITIZE_ADDRESS__)
// Sanitizers multiply the compile time: one instruction set of each width is enough to find their errors.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV | HWY_SSSE3 | HWY_SSE4)
#else
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV | HWY_SSSE3)
#endif

#include <hwy/targets.h>
