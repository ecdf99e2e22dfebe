// Detects whether this processor, the system and this build multiply bfloat16 by instructions that Highway 1.0 does not
// use.
#pragma once

namespace winnow::kernels {

// The support for products of bfloat16.
struct Bf16Support {
  bool avx512 = false;          // AVX512-BF16
  bool avx512_is_fast = false;  // its dot product has a higher rate of products than a float32 multiply-add
  bool amx = false;             // AMX tiles, which imply AVX512-BF16 here; this process may use them
};

// Returns the support, and asks the system for the right to use AMX tiles in this process and every thread that it
// starts later.
Bf16Support detect_bf16_support();

}  // namespace winnow::kernels
